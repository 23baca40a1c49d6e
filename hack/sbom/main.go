// Command sbom writes what an image is made of in the form of SPDX 2.3, as JSON: the modules of a Go program, or the files of a folder.
//
//	go run ./hack/sbom -name NAME -version VERSION (-program FILE | -folder FOLDER)
//
// The same input gives the same output when SOURCE_DATE_EPOCH says of when it is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
)

// subject is what a document describes.
type subject struct{ name, version, program, folder string }

func main() {
	var s subject
	flag.StringVar(&s.name, "name", "", "name of the image")
	flag.StringVar(&s.version, "version", "", "version of the image")
	flag.StringVar(&s.program, "program", "", "Go program whose modules are listed")
	flag.StringVar(&s.folder, "folder", "", "folder whose files are listed")
	flag.Parse()
	if err := write(os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, s subject) error {
	created, err := creationTime()
	if err != nil {
		return err
	}
	var made content
	switch {
	case s.name == "" || s.version == "" || (s.program == "") == (s.folder == ""):
		return errors.New("-name, -version and one of -program and -folder are needed")
	case s.program != "":
		made, err = modules(s)
	default:
		made, err = files(s)
	}
	if err != nil {
		return err
	}
	return json.Write(document(s, created, made), w, json.Indent("  "))
}

func document(s subject, created string, made content) *spdx.Document {
	image := made.image.PackageSPDXIdentifier
	relationships := []*spdx.Relationship{relationship("DOCUMENT", common.TypeRelationshipDescribe, image)}
	for _, module := range made.modules {
		relationships = append(relationships, relationship(image, common.TypeRelationshipDependsOn, module.PackageSPDXIdentifier))
	}
	for _, file := range made.files {
		relationships = append(relationships, relationship(image, common.TypeRelationshipContains, file.FileSPDXIdentifier))
	}
	return &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      s.name + "-" + s.version,
		DocumentNamespace: fmt.Sprintf("https://github.com/dcnlab/spot-training-operator/sbom/%s-%s-%s", s.name, s.version, created),
		CreationInfo:      &spdx.CreationInfo{Created: created, Creators: []common.Creator{{CreatorType: "Tool", Creator: "hack/sbom"}}},
		Packages:          append([]*spdx.Package{made.image}, made.modules...),
		Files:             made.files,
		Relationships:     relationships,
	}
}

func relationship(of common.ElementID, kind string, to common.ElementID) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.MakeDocElementID("", string(of)), RefB: common.MakeDocElementID("", string(to)), Relationship: kind}
}

func creationTime() (string, error) {
	created := time.Now()
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
		}
		created = time.Unix(seconds, 0)
	}
	return created.UTC().Format(time.RFC3339), nil
}
