// Package template writes catalog/template.yaml, from which opm renders the catalog: a template of opm's kind basic,
// that is the catalog with each bundle given by its image alone.
package template

import (
	"encoding/base64"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/graph"
	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
)

// File and IconFile are paths from the repository's top folder.
const (
	File     = "catalog/template.yaml"
	IconFile = "config/manifests/icon.svg"
)

const (
	header = "# Written by make catalog from releases.yaml; do not edit.\n"

	description = "Trains machine-learning models on Kubernetes and keeps the training alive: workers form one process group, " +
		"are restarted from the newest checkpoint when one fails or is taken away, and show their progress in the job's status."
)

// Options say what is not in the list of releases.
type Options struct {
	// Images is the registry and folder of the bundle images, for example registry.example.com/dcnlab.
	Images string
	// Icon is the operator's icon, an SVG.
	Icon []byte
}

// BundleImage is the name of a release's bundle image.
func (o Options) BundleImage(release releases.Release) string {
	return fmt.Sprintf("%s/%s-bundle:v%s", o.Images, releases.Package, release.Version)
}

type document struct {
	Schema  string `json:"schema"`
	Entries []any  `json:"entries"`
}

type pkg struct {
	Schema         string `json:"schema"`
	Name           string `json:"name"`
	DefaultChannel string `json:"defaultChannel"`
	Description    string `json:"description"`
	Icon           icon   `json:"icon"`
}

type icon struct {
	Data      string `json:"base64data"`
	MediaType string `json:"mediatype"`
}

type channel struct {
	Schema  string        `json:"schema"`
	Package string        `json:"package"`
	Name    string        `json:"name"`
	Entries []graph.Entry `json:"entries"`
}

type bundle struct {
	Schema string `json:"schema"`
	Image  string `json:"image"`
}

type deprecations struct {
	Schema  string        `json:"schema"`
	Package string        `json:"package"`
	Entries []deprecation `json:"entries"`
}

type deprecation struct {
	Reference reference `json:"reference"`
	Message   string    `json:"message"`
}

type reference struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// Render returns the template of a checked list.
func Render(list releases.List, o Options) ([]byte, error) {
	entries := []any{pkg{
		Schema: "olm.package", Name: releases.Package, DefaultChannel: releases.DefaultChannel, Description: description,
		Icon: icon{Data: base64.StdEncoding.EncodeToString(o.Icon), MediaType: "image/svg+xml"},
	}}
	for _, name := range releases.Channels() {
		if offered := list.In(name); len(offered) > 0 {
			entries = append(entries, channel{Schema: "olm.channel", Package: releases.Package, Name: name, Entries: graph.Of(offered)})
		}
	}
	for _, release := range list.Releases {
		entries = append(entries, bundle{Schema: "olm.bundle", Image: o.BundleImage(release)})
	}
	if deprecated := deprecationsOf(list); len(deprecated) > 0 {
		entries = append(entries, deprecations{Schema: "olm.deprecations", Package: releases.Package, Entries: deprecated})
	}
	text, err := yaml.Marshal(document{Schema: "olm.template.basic", Entries: entries})
	if err != nil {
		return nil, fmt.Errorf("write the catalog's template: %w", err)
	}
	return append([]byte(header), text...), nil
}

func deprecationsOf(list releases.List) []deprecation {
	var deprecated []deprecation
	for _, release := range list.Releases {
		if release.Deprecated != "" {
			deprecated = append(deprecated, deprecation{
				Reference: reference{Schema: "olm.bundle", Name: release.BundleName()}, Message: release.Deprecated,
			})
		}
	}
	return deprecated
}
