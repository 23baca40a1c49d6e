package podbuild

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/dcnlab/spot-training-operator/api/podtemplate"
)

const fetches = `
    image: operator:1
    args: [source, fetch]
    terminationMessagePolicy: File
    resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {memory: 256Mi}}
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}`

func TestTheCodeIsFetchedBeforeAllElse(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		first  *podtemplate.SourceStatus
		want   string
	}{
		"a ConfigMap": {`configMap: {name: script}`, nil, `
  initContainers:
  - name: operator-source` + fetches + `
    env:
    - {name: SOURCE, value: '{"configMap":{"name":"script"}}'}
    - {name: SOURCE_DIRECTORY, value: /workspace/source}
    - {name: SOURCE_FILES, value: /var/run/operator-source/SOURCE_FILES}
    - {name: HTTPS_PROXY, value: "http://proxy:3128"}
    volumeMounts:
    - {name: operator-workspace, mountPath: /workspace}
    - {name: operator-source-files, mountPath: /var/run/operator-source/SOURCE_FILES, readOnly: true}
  - name: network-preflight
  containers:
  - name: trainer
    env: [{name: A, value: b}, {name: HTTPS_PROXY, value: "http://proxy:3128"}]
    workingDir: /workspace/source
    volumeMounts: [{name: operator-workspace, mountPath: /workspace}]
  volumes:
  - {name: operator-workspace, emptyDir: {}}
  - {name: operator-source-files, configMap: {name: script, optional: true}}`},
		"a private repository, elsewhere, once more": {
			`{git: {url: "https://git.example.com/a$(B)", commit: abc, secretRef: {name: git}}, mountPath: /app/code}`,
			&podtemplate.SourceStatus{From: "https://git.example.com/a$(B)@abc", Digest: "sha256:1"}, `
  initContainers:
  - name: operator-source` + fetches + `
    env:
    - {name: SOURCE, value: '{"git":{"url":"https://git.example.com/a$$(B)","commit":"abc","secretRef":{"name":"git"}},"mountPath":"/app/code"}'}
    - {name: SOURCE_DIRECTORY, value: /workspace/code}
    - {name: SOURCE_DIGEST, value: "sha256:1"}
    - {name: SOURCE_CREDENTIALS, value: /var/run/operator-source/SOURCE_CREDENTIALS}
    - {name: HTTPS_PROXY, value: "http://proxy:3128"}
    volumeMounts:
    - {name: operator-workspace, mountPath: /workspace}
    - {name: operator-source-credentials, mountPath: /var/run/operator-source/SOURCE_CREDENTIALS, readOnly: true}
  - name: network-preflight
  containers:
  - name: trainer
    env: [{name: A, value: b}, {name: HTTPS_PROXY, value: "http://proxy:3128"}]
    workingDir: /app/code
    volumeMounts: [{name: operator-workspace, mountPath: /app/code, subPath: code}]
  volumes:
  - {name: operator-workspace, emptyDir: {}}
  - {name: operator-source-credentials, secret: {secretName: git, optional: true}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := read[corev1.PodTemplateSpec](t, `
spec:
  initContainers: [{name: network-preflight}]
  containers: [{name: trainer, env: [{name: A, value: b}, {name: HTTPS_PROXY, value: "http://proxy:3128"}]}]`)
			AddSource(&template.Spec, ptr.To(read[podtemplate.Source](t, test.source)), test.first, "operator:1")
			assert.Empty(t, cmp.Diff(read[corev1.PodTemplateSpec](t, "spec:"+test.want), template))
		})
	}
}

func TestMountsDoNotHideTheCode(t *testing.T) {
	const remedy = " would hide the code, which spec.source puts into "
	for name, test := range map[string]struct{ source, settings, field, message string }{
		"beside it": {`{configMap: {name: a}}`, `{volumes: [{name: d}], volumeMounts: [{name: d, mountPath: /workspace/data}]}`, "", ""},
		"over it": {
			`{configMap: {name: a}}`, `{volumes: [{name: d}], volumeMounts: [{name: d, mountPath: /workspace/source}]}`,
			"spec.volumeMounts[0].mountPath", "/workspace/source" + remedy + "/workspace/source: choose another path",
		},
		"over all that can be written": {
			`{configMap: {name: a}}`, `{volumes: [{name: d}], volumeMounts: [{name: d, mountPath: /workspace/}]}`,
			"spec.volumeMounts[0].mountPath", "/workspace/" + remedy + "/workspace/source: choose another path",
		},
		"over a directory above": {
			`{configMap: {name: a}, mountPath: /app/code}`, `{volumes: [{name: d}], volumeMounts: [{name: d, mountPath: /app}]}`,
			"spec.volumeMounts[0].mountPath", "/app" + remedy + "/app/code: choose another path",
		},
		"the workspace is free with code elsewhere": {
			`{configMap: {name: a}, mountPath: /app}`, `{volumes: [{name: d}], volumeMounts: [{name: d, mountPath: /workspace}]}`, "", "",
		},
		"a sidecar that sees the code": {
			`{configMap: {name: a}}`, `{podTemplate: {initContainers: [{name: s, image: s, volumeMounts: [{name: operator-workspace, mountPath: /w}]}]}}`, "", "",
		},
		"a sidecar that sees none": {
			``, `{podTemplate: {initContainers: [{name: s, image: s, volumeMounts: [{name: operator-workspace, mountPath: /w}]}]}}`,
			"spec.podTemplate.initContainers[0].volumeMounts[0].name",
			"there is a volume operator-workspace only with spec.source: name the code there, or remove the mount",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var code *podtemplate.Source
			if test.source != "" {
				code = ptr.To(read[podtemplate.Source](t, test.source))
			}
			field, message := Conflict(ptr.To(read[podtemplate.Settings](t, test.settings)), code, nil, 0)
			assert.Equal(t, test.field, field)
			assert.Equal(t, test.message, message)
		})
	}
}

func TestTheContainerThatFetchesIsCounted(t *testing.T) {
	code := &podtemplate.Source{ConfigMap: &podtemplate.ConfigMapSource{Name: "a"}}
	none := corev1.ResourceRequirements{}
	counted, uncounted := Requests(&podtemplate.Settings{}, code, none), Requests(&podtemplate.Settings{}, nil, none)
	assert.Equal(t, "10m", counted.Cpu().String())
	assert.True(t, uncounted.Cpu().IsZero())
}
