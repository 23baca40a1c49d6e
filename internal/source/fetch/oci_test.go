package fetch

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/test/harness/registry"
)

const layerGzip = types.OCILayer

// layers of an artifact.
type layers []struct {
	content   []byte
	mediaType types.MediaType
	title     string
}

// artifacts are those of a registry that one user may read.
type artifacts struct {
	*registry.Private
}

func newRegistry(t *testing.T) *artifacts {
	t.Helper()
	return &artifacts{registry.StartPrivate(t, nil, "bob", planted)}
}

func (a *artifacts) image(t *testing.T, of layers) v1.Image {
	t.Helper()
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	for _, layer := range of {
		added := mutate.Addendum{Layer: static.NewLayer(layer.content, layer.mediaType), MediaType: layer.mediaType}
		if layer.title != "" {
			added.Annotations = map[string]string{annotationTitle: layer.title}
		}
		var err error
		image, err = mutate.Append(image, added)
		require.NoError(t, err)
	}
	return image
}

// push brings an artifact to the registry, and returns its reference.
func (a *artifacts) push(t *testing.T, of layers) string {
	t.Helper()
	return a.Push(t, "team/code", a.image(t, of))
}

func (a *artifacts) source(reference string) podtemplate.Source {
	return podtemplate.Source{OCI: &podtemplate.OCISource{Reference: reference, SecretRef: secretRef}}
}

// secret is that of the user.
func (a *artifacts) secret() map[string]string { return a.secretOf(a.Password) }

func (a *artifacts) secretOf(password string) map[string]string {
	text, _ := json.Marshal(map[string]any{"auths": map[string]any{a.Address + "/team": map[string]string{"username": a.Username, "password": password}}})
	return map[string]string{keyDockerConfig: string(text), "ca.crt": a.CA}
}

func TestLayersAreUnpackedOverOneAnother(t *testing.T) {
	t.Parallel()
	a := newRegistry(t)
	reference := a.push(t, layers{
		{content: packedFiles(t, program), mediaType: layerGzip},
		{content: packedFiles(t, map[string]string{".wh.run.sh": "", "train.py": "print(2)\n"}), mediaType: types.DockerLayer},
		{content: []byte("a: 1\n"), mediaType: "application/yaml", title: "config/train.yaml"},
		{content: []byte("{}"), mediaType: mediaTypeEmpty},
	})
	run(t, a.source(reference), a.secret()).has(t, map[string]string{
		"train.py": "print(2)\n", "pkg/model.py": program["pkg/model.py"], "latest.py": "->train.py", "config/train.yaml": "a: 1\n",
	})
	run(t, a.source(a.push(t, layers{{content: []byte("x"), mediaType: "application/octet-stream"}})), a.secret()).fails(t, reasons.SourceInvalid,
		"neither a tar nor has the annotation org.opencontainers.image.title")
	run(t, a.source(a.push(t, layers{{content: []byte("x"), mediaType: "text/plain", title: "../../x"}})), a.secret()).fails(t, reasons.SourceInvalid,
		"the entry ../../x leads out of the directory")
}

func TestAnIndexHasTheImageOfThisPlatform(t *testing.T) {
	t.Parallel()
	a := newRegistry(t)
	push := func(architecture string) string {
		index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
			Add:        a.image(t, layers{{content: packedFiles(t, program), mediaType: layerGzip}}),
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
		digest, err := index.Digest()
		require.NoError(t, err)
		reference, err := name.NewDigest(a.Address + "/team/index@" + digest.String())
		require.NoError(t, err)
		require.NoError(t, remote.WriteIndex(reference, index, a.Options()...))
		return reference.String()
	}
	run(t, a.source(push("amd64")), a.secret()).has(t, program)
	run(t, a.source(push("s390x")), a.secret()).fails(t, reasons.SourceInvalid, "spec.source.oci.reference: the index has no image for linux/")
}

func TestAPrivateRegistryNeedsItsCredentials(t *testing.T) {
	t.Parallel()
	a := newRegistry(t)
	from := a.source(a.push(t, layers{{content: packedFiles(t, program), mediaType: layerGzip}}))
	run(t, from, a.secretOf(planted+"x")).fails(t, reasons.SourceAccessDenied, "refuses access: correct the Secret fetch of spec.source.oci.secretRef")
	run(t, from, map[string]string{keyDockerConfig: planted, "ca.crt": a.CA}).fails(t, reasons.SourceAccessDenied, "Secret fetch has no readable key .dockerconfigjson")
	run(t, from, map[string]string{keyDockerConfig: "{}"}).fails(t, reasons.SourceUnreachable, "has a certificate that is not trusted")
	missing := a.source(a.Address + "/team/code@sha256:" + strings.Repeat("12", 32))
	run(t, missing, a.secret()).fails(t, reasons.SourceNotFound, "has no such artifact: correct the reference")
	from.OCI.SecretRef = nil
	run(t, from, map[string]string{"ca.crt": a.CA}).fails(t, reasons.SourceAccessDenied,
		"needs credentials, or has no such artifact: name a Secret in spec.source.oci.secretRef")
}

func TestARegistryWithoutEncryptionIsNotAsked(t *testing.T) {
	t.Parallel()
	asked := 0
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(plain.Close)
	address := strings.TrimPrefix(plain.URL, "http://")
	from := podtemplate.Source{OCI: &podtemplate.OCISource{Reference: address + "/code@sha256:" + strings.Repeat("12", 32)}}
	run(t, from, nil).fails(t, reasons.SourceUnreachable, "cannot be reached by HTTPS, and is not asked without encryption")
	require.Zero(t, asked)
}
