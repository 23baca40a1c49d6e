package template

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/hack/catalog/internal/releases"
)

const want = `# Written by make catalog from releases.yaml; do not edit.
entries:
- defaultChannel: stable
  description: DESCRIPTION
  icon:
    base64data: PHN2Zy8+
    mediatype: image/svg+xml
  name: spot-training-operator
  schema: olm.package
- entries:
  - name: spot-training-operator.v0.1.0
  - name: spot-training-operator.v0.2.0
    replaces: spot-training-operator.v0.1.0
  name: candidate
  package: spot-training-operator
  schema: olm.channel
- entries:
  - name: spot-training-operator.v0.1.0
  name: fast
  package: spot-training-operator
  schema: olm.channel
- entries:
  - name: spot-training-operator.v0.1.0
  name: stable
  package: spot-training-operator
  schema: olm.channel
- image: registry.example.com/dcnlab/spot-training-operator-bundle:v0.1.0
  schema: olm.bundle
- image: registry.example.com/dcnlab/spot-training-operator-bundle:v0.2.0
  schema: olm.bundle
- entries:
  - message: Upgrade to 0.2.0.
    reference:
      name: spot-training-operator.v0.1.0
      schema: olm.bundle
  package: spot-training-operator
  schema: olm.deprecations
schema: olm.template.basic
`

func TestRender(t *testing.T) {
	list := releases.List{Releases: []releases.Release{
		{Version: "0.1.0", Channels: releases.Channels(), Deprecated: "Upgrade to 0.2.0."},
		{Version: "0.2.0", Channels: []string{releases.Candidate}},
	}}
	text, err := Render(list, Options{Images: "registry.example.com/dcnlab", Icon: []byte("<svg/>")})
	require.NoError(t, err)
	got := foldDescription(string(text))
	assert.Equal(t, want, got)
}

// A catalog that deprecates nothing has no olm.deprecations, which may not be empty.
func TestRenderWithoutDeprecations(t *testing.T) {
	text, err := Render(releases.List{Releases: []releases.Release{{Version: "0.1.0", Channels: releases.Channels()}}}, Options{})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "olm.deprecations")
}

// foldDescription stands in for the package's description, which is long and broken into lines.
func foldDescription(text string) string {
	before, rest, _ := strings.Cut(text, "  description: ")
	_, after, _ := strings.Cut(rest, "  icon:")
	return before + "  description: DESCRIPTION\n  icon:" + after
}
