package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// kindsWithSource are objects of the kinds that take code.
func kindsWithSource() map[string]string {
	return map[string]string{"TrainingJob": trainingJob, "AIJob": aiJob, "Agent": agent}
}

const (
	aCommit = "8c1f3d0ab6f1a2f94f9f4a6e8b0f8e3d5c7b9a01"
	aDigest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
)

func TestSourcesAreAccepted(t *testing.T) {
	for kind, of := range kindsWithSource() {
		for name, source := range map[string]string{
			"a ConfigMap":         `{configMap: {name: script}}`,
			"git over https":      `{git: {url: "https://git.example.com:8443/a/b.git", commit: ` + aCommit + `, path: train/it, secretRef: {name: git}}}`,
			"git over ssh":        `{git: {url: "ssh://git@git.example.com:2222/a/b.git", commit: ` + aCommit + `}}`,
			"git as scp has it":   `{git: {url: "git@git.example.com:a/b.git", commit: ` + aDigest + `}}`,
			"an artifact":         `{oci: {reference: "registry.example.com:5000/a/b@sha256:` + aDigest + `", secretRef: {name: registry}}, mountPath: /app}`,
			"an archive by https": `{archive: {uri: "https://files.example.com/a.zip?x=user@b", sha256: ` + aDigest + `}, mountPath: /workspace/a/b}`,
			"an archive in a store": `{archive: {uri: "s3://bucket/a.tar.gz?region=eu-west-1&endpoint=https%3A%2F%2Fminio%3A9000", sha256: ` + aDigest +
				`, secretRef: {name: keys}}}`,
		} {
			t.Run(kind+" of "+name, func(t *testing.T) {
				good := with(t, object(t, of), "spec:\n  source: "+source+"\n")
				good.SetGenerateName("with-source-")
				good.SetName("")
				require.NoError(t, k8s.Create(t.Context(), good, strictly...))
			})
		}
	}
}

func TestSourceRejections(t *testing.T) {
	git := func(url, commit, more string) string {
		return `{git: {url: "` + url + `", commit: "` + commit + `"` + more + `}}`
	}
	archive := func(uri, sum string) string { return `{archive: {uri: "` + uri + `", sha256: "` + sum + `"}}` }
	const one = "name exactly one of configMap, git, oci and archive"
	for _, test := range []rejection{
		{"no source", `{}`, "spec.source", one},
		{"two sources", `{configMap: {name: a}, git: {url: "https://a/b", commit: ` + aCommit + `}}`, "spec.source", one},
		{"a ConfigMap without name", `{configMap: {}}`, "spec.source.configMap.name", "Required value"},
		{"a branch", git("https://a/b", "main", ""), "spec.source.git.commit", "is no commit: write the 40 or 64 digits that git rev-parse main prints"},
		{"a short commit", git("https://a/b", "8c1f3d0", ""), "spec.source.git.commit", "git rev-parse 8c1f3d0 prints"},
		{"a local repository", git("file:///srv/git", aCommit, ""), "spec.source.git.url", "begins with https:// or ssh://, or has the form user@host:path"},
		{"plain HTTP", git("http://a/b", aCommit, ""), "spec.source.git.url", "begins with https:// or ssh://"},
		{"a password in the address", git("https://u:p@a/b", aCommit, ""), "spec.source.git.url", "must not hold a user or password, which all who see the job read: use secretRef"},
		{"a password in the address of ssh", git("ssh://u:p@a/b", aCommit, ""), "spec.source.git.url", "must not hold a password"},
		{"a path that leads out", git("https://a/b", aCommit, `, path: a/../../b`), "spec.source.git.path", "leads out of the repository"},
		{"an absolute path", git("https://a/b", aCommit, `, path: /a`), "spec.source.git.path", "leads out of the repository"},
		{"a tag of a registry", `{oci: {reference: "registry.example.com/a:v1"}}`, "spec.source.oci.reference", "has no digest: write registry/repository@sha256:"},
		{"another protocol", archive("ftp://a/b", aDigest), "spec.source.archive.uri", "a uri begins with https://, s3://, gs:// or azblob://"},
		{"an archive by plain HTTP", archive("http://a/b", aDigest), "spec.source.archive.uri", "a uri begins with https://"},
		{"a user in a uri", archive("https://u:p@a/b", aDigest), "spec.source.archive.uri", "must not hold a user or password"},
		{"no checksum", `{archive: {uri: "https://a/b"}}`, "spec.source.archive.sha256", "Required value"},
		{"no SHA-256", archive("https://a/b", "d41d8cd98f00b204e9800998ecf8427e"), "spec.source.archive.sha256", "is no SHA-256: write the 64 digits that sha256sum prints"},
		{"a path of the operator", `{configMap: {name: a}, mountPath: /checkpoints/code}`, "spec.source.mountPath", "are paths of the operator: choose another"},
		{"the workspace itself", `{configMap: {name: a}, mountPath: /workspace}`, "spec.source.mountPath", "or one below /workspace"},
		{"everything", `{configMap: {name: a}, mountPath: /}`, "spec.source.mountPath", "is not an absolute path"},
		{"a relative path", `{configMap: {name: a}, mountPath: code}`, "spec.source.mountPath", "is not an absolute path"},
	} {
		for kind, of := range kindsWithSource() {
			t.Run(kind+" of "+test.name, func(t *testing.T) {
				bad := with(t, object(t, of), "spec:\n  source: "+test.change+"\n")
				bad.SetName("bad")
				assertRejected(t, k8s.Create(t.Context(), bad, strictly...), test)
			})
		}
	}
}
