package podtemplate

import (
	"path"
	"strings"
)

// Source says where the code of the program is. It is unpacked in front of the program, into a directory that the program may write,
// and is the working directory unless workingDir names another. What is fetched is pinned: by its commit, digest or checksum, and that of
// a ConfigMap by what it held at the first start.
//
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.git), has(self.oci), has(self.archive)].filter(is, is).size() == 1",message="spec.source: name exactly one of configMap, git, oci and archive"
type Source struct {
	// configMap has the code in a ConfigMap.
	ConfigMap *ConfigMapSource `json:"configMap,omitempty"`

	// git has the code in a git repository.
	Git *GitSource `json:"git,omitempty"`

	// oci has the code in an OCI artifact or image of a registry.
	OCI *OCISource `json:"oci,omitempty"`

	// archive has the code in a tar or zip file.
	Archive *ArchiveSource `json:"archive,omitempty"`

	// mountPath is the directory of the code, an absolute path. Default /workspace/source. The rest of /workspace can be written, too.
	// With a path outside of /workspace there is no /workspace.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/') && !self.endsWith('/') && !self.matches('//|/[.][.]?(/|$)')",message="spec.source.mountPath: is not an absolute path without parts that are empty, . or ..: write for example /workspace/source"
	// +kubebuilder:validation:XValidation:rule="self != '/workspace' && ['/checkpoints', '/resume', '/etc/training', '/dev', '/proc', '/sys', '/tensorboard', '/var/run/checkpoint-credentials', '/var/run/resume-credentials', '/var/run/secrets'].all(p, self != p && !self.startsWith(p + '/'))",message="spec.source.mountPath: /workspace, /checkpoints, /resume, /etc/training, /dev, /proc, /sys, /tensorboard, /var/run/checkpoint-credentials, /var/run/resume-credentials and /var/run/secrets are paths of the operator: choose another, or one below /workspace"
	MountPath string `json:"mountPath,omitempty"`
}

// ConfigMapSource is a ConfigMap whose keys are files. With the key source.tar.gz, as "source pack" writes it, that archive is unpacked
// instead.
type ConfigMapSource struct {
	// name of the ConfigMap, in the namespace of the job.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// GitSource is a commit of a git repository. Submodules, Git LFS and hooks are not supported.
type GitSource struct {
	// url of the repository: https://host/path, ssh://user@host/path, or user@host:path.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.startsWith('https://') || self.startsWith('ssh://') || (!self.contains('://') && self.matches('^[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^ ]+$'))",message="spec.source.git.url: begins with https:// or ssh://, or has the form user@host:path"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('https://') || !self.matches('^https://[^/]*@')",message="spec.source.git.url: must not hold a user or password, which all who see the job read: use secretRef"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('ssh://') || !self.matches('^ssh://[^/@]*:[^/]*@')",message="spec.source.git.url: must not hold a password, which all who see the job read: use secretRef"
	URL string `json:"url,omitempty"`

	// commit is the 40 or 64 hexadecimal digits of the commit, as git rev-parse prints them.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9a-f]{40}|[0-9a-f]{64})$')",messageExpression="'spec.source.git.commit: is no commit: write the 40 or 64 digits that git rev-parse ' + self + ' prints'"
	Commit string `json:"commit,omitempty"`

	// path is the directory in the repository that is taken. Default: all of it.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.matches('(^|/)[.][.](/|$)')",message="spec.source.git.path: leads out of the repository: write a path below its top, without a slash in front"
	Path string `json:"path,omitempty"`

	// secretRef names a Secret with the keys username and password, or token, for https; identity, a private key, and known_hosts for ssh;
	// and ca.crt where the certificate of the server is signed by a private authority. Default: none; ssh needs one.
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// OCISource is an OCI artifact or image, whose layers are unpacked over one another.
type OCISource struct {
	// reference with the digest of the manifest: registry/repository@sha256:digest.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^[^ @]+@sha256:[0-9a-f]{64}$')",message="spec.source.oci.reference: has no digest: write registry/repository@sha256: and the 64 digits that the push printed"
	Reference string `json:"reference,omitempty"`

	// secretRef names a Secret with the key .dockerconfigjson, as of type kubernetes.io/dockerconfigjson, and ca.crt where the certificate
	// of the registry is signed by a private authority. Default: none.
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// ArchiveSource is a tar file, also compressed by gzip or zstd, or a zip file.
type ArchiveSource struct {
	// uri of the file: https://host/path, s3://bucket/key, gs://bucket/key or azblob://container/key, with the queries of
	// spec.checkpoint.resumeFrom for the last three.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="['https://', 's3://', 'gs://', 'azblob://'].exists(p, self.startsWith(p))",message="spec.source.archive.uri: a uri begins with https://, s3://, gs:// or azblob://"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[a-z0-9]+://[^/?#]*@')",message="spec.source.archive.uri: must not hold a user or password, which all who see the job read: use secretRef"
	URI string `json:"uri,omitempty"`

	// sha256 is the SHA-256 of the file in 64 hexadecimal digits, as sha256sum prints it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="spec.source.archive.sha256: is no SHA-256: write the 64 digits that sha256sum prints"
	SHA256 string `json:"sha256,omitempty"`

	// secretRef names a Secret with the keys username and password, or token, for https; those of checkpoints for the others; and ca.crt where
	// the certificate of the server is signed by a private authority. Default: none.
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// SecretReference names a Secret in the namespace of the job. Only what fetches the code reads it, not the program.
type SecretReference struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
}

// SourceStatus is the code that the program was started with.
type SourceStatus struct {
	// digest over the files of the code: "sha256:" and the SHA-256 over their sorted paths, whether each is executable, and their
	// contents. The same files have the same digest, wherever they come from.
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest,omitempty"`

	// from is where it comes from, without credentials: configmap://NAME, the URL of the repository with the commit, oci:// and the
	// reference, or the URI of the archive with its SHA-256. When an edit of spec.source changes it, the code is pinned again.
	// +kubebuilder:validation:MaxLength=4096
	From string `json:"from,omitempty"`

	// revision is the commit, the digest of the manifest or the SHA-256 of the archive. A ConfigMap has none.
	// +kubebuilder:validation:MaxLength=128
	Revision string `json:"revision,omitempty"`

	// sizeBytes of all files.
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// files is their number.
	Files int32 `json:"files,omitempty"`
}

const (
	// WorkspaceMount is the path of the volume with the code, which the program may write.
	WorkspaceMount = "/workspace"
	defaultSource  = WorkspaceMount + "/source"
)

// Directory is where the program finds its code.
func (s *Source) Directory() string {
	if s.MountPath == "" {
		return defaultSource
	}
	return path.Clean(s.MountPath)
}

// IsInWorkspace says whether the code lies below WorkspaceMount.
func (s *Source) IsInWorkspace() bool { return strings.HasPrefix(s.Directory(), WorkspaceMount+"/") }

// Origin is where the code comes from, as SourceStatus.From says it.
func (s *Source) Origin() string {
	switch {
	case s.ConfigMap != nil:
		return "configmap://" + s.ConfigMap.Name
	case s.Git != nil && s.Git.Path != "":
		return s.Git.URL + "@" + s.Git.Commit + "//" + s.Git.Path
	case s.Git != nil:
		return s.Git.URL + "@" + s.Git.Commit
	case s.OCI != nil:
		return "oci://" + s.OCI.Reference
	case s.Archive != nil:
		return s.Archive.URI + "@sha256:" + s.Archive.SHA256
	}
	return ""
}

// Secret names the Secret with which the code is fetched; empty for none.
func (s *Source) Secret() string {
	var of *SecretReference
	switch {
	case s.Git != nil:
		of = s.Git.SecretRef
	case s.OCI != nil:
		of = s.OCI.SecretRef
	case s.Archive != nil:
		of = s.Archive.SecretRef
	}
	if of == nil {
		return ""
	}
	return of.Name
}
