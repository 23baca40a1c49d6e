package main

import (
	"debug/buildinfo"
	"fmt"
	"net/url"
	"strings"

	"github.com/spdx/tools-golang/builder"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// unknown is what SPDX has for what a document does not state.
const unknown = "NOASSERTION"

// content is what an image is made of.
type content struct {
	image   *spdx.Package
	modules []*spdx.Package
	files   []*spdx.File
}

// modules returns Go's standard library, and all modules that are linked into the program.
func modules(s subject) (content, error) {
	info, err := buildinfo.ReadFile(s.program)
	if err != nil {
		return content{}, err
	}
	made := content{
		image:   newPackage("Image", s.name, s.version, ""),
		modules: []*spdx.Package{newPackage("Go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib")},
	}
	for i, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		purl := "pkg:golang/" + strings.ToLower(module.Path)
		made.modules = append(made.modules, newPackage(fmt.Sprintf("Module-%d", i+1), module.Path, module.Version, purl))
	}
	return made, nil
}

func newPackage(id, name, version, purl string) *spdx.Package {
	p := &spdx.Package{
		PackageSPDXIdentifier: common.ElementID("Package-" + id), PackageName: name, PackageVersion: version,
		PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
	}
	if purl != "" {
		p.PackageExternalReferences = []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl + "@" + url.QueryEscape(version),
		}}
	}
	return p
}

// files returns all files of the folder with their checksums.
func files(s subject) (content, error) {
	folder, err := builder.BuildPackageSection(s.name, s.folder, nil)
	if err != nil {
		return content{}, err
	}
	made := content{image: folder, files: folder.Files}
	folder.PackageVersion, folder.Files = s.version, nil
	return made, nil
}
