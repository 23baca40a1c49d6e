package fetch

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
	"github.com/dcnlab/spot-training-operator/api/reasons"
	"github.com/dcnlab/spot-training-operator/internal/source"
)

func configMap(name string) podtemplate.Source {
	return podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: name}}
}

func TestTheSameFilesHaveOneDigest(t *testing.T) {
	t.Parallel()
	packed := packedFiles(t, program)
	url, ca := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed) })
	git := newRepository(t)
	of := newRegistry(t)
	for name, f := range map[string]*fetching{
		"configMap": run(t, configMap("code"), map[string]string{"source.tar.gz": string(packed)}),
		"git":       run(t, git.source(t, git.commit(t, program)), git.secret(t)),
		"oci":       run(t, of.source(of.push(t, layers{{content: packed, mediaType: layerGzip}})), of.secret()),
		"archive":   run(t, archiveOf(url+"/code.tar.gz", packed), map[string]string{"ca.crt": ca}),
	} {
		f.has(t, program)
		assert.Equal(t, "sha256:38500b29bc943909cf43fc883bf409d4d7537c2196466404a8003965cc3dd0a4", f.status.Digest, name)
		assert.EqualValues(t, 4, f.status.Files, name)
		assert.EqualValues(t, 63, f.status.SizeBytes, name)
		assert.Equal(t, revision(f.Source), f.status.Revision, name)
	}
}

func TestAConfigMapWithoutAnArchiveHasFiles(t *testing.T) {
	t.Parallel()
	files := map[string]string{"train.py": "print()\n", "config.yaml": "a: 1\n"}
	f := run(t, configMap("code"), files).has(t, files)
	assert.Empty(t, f.status.Revision)

	run(t, configMap("code"), nil).fails(t, reasons.SourceNotFound, "spec.source.configMap.name: there is no ConfigMap code, or it is empty")
	run(t, configMap("code"), map[string]string{"source.tar.gz": "this is none"}).fails(t, reasons.SourceInvalid, "spec.source.configMap: ")
}

func TestCodeThatHasChangedIsRefused(t *testing.T) {
	t.Parallel()
	files := map[string]string{"train.py": "print()\n"}
	first := run(t, configMap("code"), files).has(t, files)
	pin := func(s *Settings) { s.Digest = first.status.Digest }
	run(t, configMap("code"), files, pin).has(t, files)
	run(t, configMap("code"), map[string]string{"train.py": "print(1)\n"}, pin).fails(t, reasons.SourceChanged,
		"not "+first.status.Digest+" of status.source: create the job again")
}

func TestWhatLaysThereIsReplaced(t *testing.T) {
	t.Parallel()
	files := map[string]string{"train.py": "print()\n"}
	run(t, configMap("code"), files, func(s *Settings) {
		write(t, s.Directory, program)
		write(t, filepath.Join(filepath.Dir(s.Directory), working, "code"), program)
	}).has(t, files)
}

func TestASourceNeedsItsSecret(t *testing.T) {
	t.Parallel()
	digest := "registry.example.com/code@sha256:0000000000000000000000000000000000000000000000000000000000000000"
	for keys, from := range map[string]podtemplate.Source{
		"spec.source.git.secretRef: there is no Secret fetch, or it is empty: create it with the keys username and password, or token": {
			Git: &podtemplate.GitSource{URL: "https://example.com/a.git", SecretRef: secretRef},
		},
		"spec.source.git.secretRef: there is no Secret fetch, or it is empty: create it with the keys identity and known_hosts": {
			Git: &podtemplate.GitSource{URL: "git@example.com:a.git", SecretRef: secretRef},
		},
		"spec.source.oci.secretRef: there is no Secret fetch, or it is empty: create it with the key .dockerconfigjson": {
			OCI: &podtemplate.OCISource{Reference: digest, SecretRef: secretRef},
		},
		"spec.source.archive.secretRef: there is no Secret fetch, or it is empty: create it with the keys username and password, or token": {
			Archive: &podtemplate.ArchiveSource{URI: "https://example.com/a.zip", SecretRef: secretRef},
		},
		"spec.source.archive.secretRef: there is no Secret fetch, or it is empty: create it with the keys that a Secret of spec.checkpoint.storage has": {
			Archive: &podtemplate.ArchiveSource{URI: "s3://bucket/a.zip", SecretRef: secretRef},
		},
	} {
		run(t, from, nil).fails(t, reasons.SourceAccessDenied, keys)
	}
}

func TestNoSecretIsRepeated(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		"password": planted, "token": planted, "identity": planted,
		keyDockerConfig: `{"auths": {"registry.example.com": {"username": "bob", "password": "` + planted + `"}}}`,
	} {
		for _, err := range []error{errors.New("refused: " + planted), problem(reasons.SourceAccessDenied, "spec.source: refused: %s", planted)} {
			assert.NotContains(t, secret{key: value}.redact(err).Error(), planted, key)
		}
	}
}

func TestANodeWithoutSpaceIsTold(t *testing.T) {
	t.Parallel()
	err := (server{source: "spec.source.archive", address: "uri"}).explain(&os.PathError{Op: "write", Path: "/workspace", Err: syscall.ENOSPC})
	var p *source.Problem
	require.ErrorAs(t, err, &p)
	assert.Equal(t, reasons.SourceVolumeFull, p.Reason)
	assert.Contains(t, p.Message, "spec.source: there is no space left on the node")
}
