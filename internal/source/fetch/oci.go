package fetch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/registry/keychain"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

const (
	// keyDockerConfig is the key of a Secret of type kubernetes.io/dockerconfigjson.
	keyDockerConfig = ".dockerconfigjson"
	// annotationTitle of a layer is the name of the file that it is.
	annotationTitle = "org.opencontainers.image.title"
	// mediaTypeEmpty is the layer of an artifact that has none.
	mediaTypeEmpty = "application/vnd.oci.empty.v1+json"
)

// errPlain is of a registry that would be spoken to without encryption, as the library tries with private addresses.
var errPlain = errors.New("the registry speaks no TLS")

// fromOCI unpacks the layers of an artifact or image over one another.
func (a *attempt) fromOCI(ctx context.Context) error {
	reference, err := name.NewDigest(a.Source.OCI.Reference, name.StrictValidation)
	if err != nil {
		return problem(reasons.SourceInvalid, "spec.source.oci.reference: is no reference with a digest: write registry/repository@sha256: and 64 digits")
	}
	s := server{"spec.source.oci", "reference", reference.RegistryStr(), "artifact", a.Source.Secret()}
	keys := keychain.Keychain{}
	if s.secret != "" {
		if keys, err = keychain.Parse([]byte(a.secret[keyDockerConfig])); err != nil {
			return problem(reasons.SourceAccessDenied, "%s.secretRef: Secret %s has no readable key %s: create it with kubectl create secret docker-registry",
				s.source, s.secret, keyDockerConfig)
		}
	}
	inner, err := a.transport(s.source)
	if err != nil {
		return err
	}
	defer inner.CloseIdleConnections()
	found, err := remote.Get(reference, remote.WithContext(ctx), remote.WithAuthFromKeychain(keys), remote.WithTransport(encrypted{inner}),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1})) // it is tried again as a whole
	if err != nil {
		return s.explainRegistry(err)
	}
	image, err := imageOf(found)
	if err != nil {
		return s.explainRegistry(err)
	}
	manifest, err := image.Manifest()
	if err != nil {
		return s.explainRegistry(err)
	}
	for _, layer := range manifest.Layers {
		if err := a.layer(image, layer); err != nil {
			return s.explainRegistry(err)
		}
	}
	return nil
}

// imageOf is the image itself, or the one of an index for this platform.
func imageOf(found *remote.Descriptor) (v1.Image, error) {
	switch {
	case found.MediaType.IsImage():
		return found.Image()
	case !found.MediaType.IsIndex():
		return nil, problem(reasons.SourceInvalid, "spec.source.oci.reference: is of the media type %s: write the digest of an OCI artifact or image", found.MediaType)
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, architecture := range []string{runtime.GOARCH, "amd64"} {
		for _, of := range manifest.Manifests {
			if of.Platform != nil && of.Platform.OS == "linux" && of.Platform.Architecture == architecture {
				return index.Image(of.Digest)
			}
		}
	}
	return nil, problem(reasons.SourceInvalid, "spec.source.oci.reference: the index has no image for linux/%s: write the digest of the image itself", runtime.GOARCH)
}

// layer unpacks one layer, or puts the file that it is. The library compares its digest.
func (a *attempt) layer(image v1.Image, of v1.Descriptor) error {
	if of.MediaType == mediaTypeEmpty {
		return nil
	}
	layer, err := image.LayerByDigest(of.Digest)
	if err != nil {
		return err
	}
	content, err := layer.Compressed()
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	title := of.Annotations[annotationTitle]
	switch {
	case tarred.MatchString(string(of.MediaType)):
		return a.code.Layer(content)
	case title == "":
		return problem(reasons.SourceInvalid, "spec.source.oci.reference: the layer %s is of the media type %s, and neither a tar nor has "+
			"the annotation %s: push files or a tar",
			of.Digest, of.MediaType, annotationTitle)
	}
	if err := a.code.File(title, false, content); err != nil {
		return err
	}
	// The digest is compared at the end of it.
	_, err = io.Copy(io.Discard, content)
	return err
}

// tarred ends the media types of layers that are tars: those of OCI and Docker, and what tools make of them.
var tarred = regexp.MustCompile(`[./+-]tar([.+](gzip|zstd))?$`)

// explainRegistry puts an error of the library into words.
func (s server) explainRegistry(err error) error {
	if known := ownProblem(s.source, err); known != nil {
		return known
	}
	if answer, ok := errors.AsType[*transport.Error](err); ok {
		return s.status(answer.StatusCode)
	}
	// The library asks with and without encryption where an address is private: the former's error counts.
	if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); errors.Is(err, errPlain) && !untrusted {
		return &passing{&source.Problem{Reason: reasons.SourceUnreachable, Message: fmt.Sprintf("%s: %s cannot be reached by HTTPS, and is not asked without encryption: %s",
			s.field(), s.host, plain(err))}}
	}
	return s.explain(err)
}
