// Package compatibility checks that no release breaks what users of the release before have: their manifests, their
// stored objects and their clients. It compares the CRDs of the releases in catalog/releases.yaml, as they are in the git
// history, one after the other and the last of them with the present ones.
package compatibility

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const (
	root         = "../../.."
	crdFolder    = "config/crd/bases"
	releasesFile = "catalog/releases.yaml"
)

// release is an entry of the releases file. The one that is being worked on has no commit.
type release struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

// accepted are breaks that are known and wanted, with the reason: the beginning of the break as it is reported, after the
// two versions.
var accepted = joined(wantedOfTrainingJobs, movedRulesOfAIJobs(), looserRulesOfAIJobs(), wantedSince030, map[string]string{
	"0.2.0 to 0.3.0: spotinstancevms.training.training.dcnlab.com: v1alpha1 ^.spec: unhandled": "the new rule is about the new " +
		"field prices only",
	"0.2.0 to 0.3.0: aijobqueues.aiplatform.example.com: v1alpha1 ^.spec: unhandled": "the new rules are about the new fields " +
		"cohort and borrowingLimits only",
	"0.2.0 to 0.3.0: aijobs.aiplatform.example.com: v1alpha1 ^.spec.resources: unhandled": "amounts below 0 never worked: " +
		"no pod can have them; and it is immutable by a rule of its own now",
	"0.2.0 to 0.3.0: aijobs.aiplatform.example.com: v1alpha1 ^.status: default": "an AIJob without a status is Pending, " +
		"and every version takes it for that",
	"0.2.0 to 0.3.0: agents.aiplatform.example.com: v1alpha1 ^.spec.resources: unhandled": "amounts below 0 never worked: " +
		"no pod can have them",
	"0.2.0 to 0.3.0: aijobs.aiplatform.example.com: v1alpha1 ^.spec.timeoutSeconds: maximum":         longTimeouts,
	"0.2.0 to 0.3.0: agents.aiplatform.example.com: v1alpha1 ^.spec.timeoutSeconds: maximum":         longTimeouts,
	"0.2.0 to 0.3.0: agentworkflows.aiplatform.example.com: v1alpha1 ^.spec.timeoutSeconds: maximum": longTimeouts,
})

const longTimeouts = "more than 100 years is no limit, and the longest of them ended jobs at once; stored objects keep what they have"

var wantedOfTrainingJobs = wanted("0.2.0 to 0.3.0: trainingjobs.ml.example.com: ", map[string]string{
	"^.spec.checkpoint.resumeFrom: unhandled": "the rule takes the names of TrainingJobs besides all that it took before; " +
		"what the new one refuses, settings of a URI that no store has, never worked",
	"^.spec.checkpoint: unhandled":         "the new rules refuse what never worked, and stored objects keep what they have",
	"^.spec.checkpoint.storage: unhandled": "a password in a URL is refused, and stored objects keep what they have",
	"^.spec: unhandled":                    "two programs at one port of a pod never worked; a stored job like that can still be deleted",
	"^.spec.monitoring: unhandled":         "a password in a URL is refused, and stored objects keep what they have",
}, "v1", "v1beta1")

// wantedSince030 are rules about new fields, and about what never worked.
var wantedSince030 = map[string]string{
	"0.3.0 to the present CRDs: agents.aiplatform.example.com: v1alpha1 ^.spec: unhandled": "the new rules are about the new fields " +
		"volumes and podTemplate only",
	"0.3.0 to the present CRDs: aijobqueues.aiplatform.example.com: v1alpha1 ^.spec.workers.tolerations: unhandled": "a Deployment with such " +
		"tolerations was refused, so that there were no workers",
	"0.3.0 to the present CRDs: aijobqueues.aiplatform.example.com: v1alpha1 ^.spec.workers: unhandled": "the new rules are about the new " +
		"fields volumes, envFrom and podTemplate only",
	"0.3.0 to the present CRDs: aijobs.aiplatform.example.com: v1alpha1 ^.spec: unhandled": "the new rules are about new fields only, and " +
		"those that kept fields as they are moved to the object",
	"0.3.0 to the present CRDs: aijobs.aiplatform.example.com: v1alpha1 ^: unhandled": editable,
	"0.3.0 to the present CRDs: spotinstancevms.training.training.dcnlab.com: v1alpha1 ^.spec.gcp: unhandled": "the new rule is about the " +
		"new field machineTypes only",
	"0.3.0 to the present CRDs: spotinstancevms.training.training.dcnlab.com: v1alpha1 ^.spec.prices: unhandled": "the rule takes more than " +
		"before: prices that differ in the new field machineType",
	"0.3.0 to the present CRDs: spotinstancevms.training.training.dcnlab.com: v1alpha1 ^.spec: unhandled": "the new rule is about the new " +
		"field machineType of prices only",
	"0.3.0 to the present CRDs: trainingjobs.ml.example.com: v1 ^.spec: unhandled": "the new rules are about new fields only, and those that " +
		"kept fields as they are moved to the object",
	"0.3.0 to the present CRDs: trainingjobs.ml.example.com: v1 ^: unhandled": editable,
}

// editable says why rules of an object may be new.
const editable = "the rules take more than those that stood in the spec: they hold only while the job cannot be edited (TestTrainingJobChanges, " +
	"TestAIPlatformChanges)"

// looserRulesOfAIJobs are the rules that kept a field as it is: they stand at the object now, and take more.
func looserRulesOfAIJobs() map[string]string {
	all := map[string]string{}
	for _, field := range []string{"args", "clusterName", "command", "env", "image", "nodeSelector", "resources", "serviceAccountName", "tolerations"} {
		all["0.3.0 to the present CRDs: aijobs.aiplatform.example.com: v1alpha1 ^.spec."+field+": unhandled"] = editable
	}
	return all
}

// movedRulesOfAIJobs are the rules that a field cannot change: they stand at the field itself now, and what they refuse is the same
// (TestAIPlatformChanges).
func movedRulesOfAIJobs() map[string]string {
	all := map[string]string{}
	for _, field := range []string{"", ".args", ".clusterName", ".command", ".env", ".nodeSelector", ".serviceAccountName", ".tolerations"} {
		all["0.2.0 to 0.3.0: aijobs.aiplatform.example.com: v1alpha1 ^.spec"+field+": unhandled"] = "the same is refused by rules elsewhere"
	}
	return all
}

func joined(all ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, some := range all {
		maps.Copy(sum, some)
	}
	return sum
}

// wanted are breaks in all versions of a kind.
func wanted(kind string, breaks map[string]string, versions ...string) map[string]string {
	all := map[string]string{}
	for _, version := range versions {
		for field, reason := range breaks {
			all[kind+version+" "+field] = reason
		}
	}
	return all
}

// boundsOfInt32 are those that fields of that type got in 0.3.0. What they refuse could not be read back: before Kubernetes 1.36 the
// API server stored numbers that no client could decode.
var boundsOfInt32 = []string{
	": maximum: maximum constraint added when there was none previously : 2.147483647e+09",
	": minimum: minimum constraint added when there was none previously : -2.147483648e+09",
}

// acceptedBy returns the entry of accepted that the break begins with.
func acceptedBy(found string) (key, reason string, ok bool) {
	for _, bound := range boundsOfInt32 {
		if strings.HasSuffix(found, bound) {
			return bound, "what is refused could not be read back", true
		}
	}
	for key, reason := range accepted {
		if strings.HasPrefix(found, key) {
			return key, reason, true
		}
	}
	return "", "", false
}

func TestReleasesAreCompatible(t *testing.T) {
	released := releases(t)
	used := map[string]bool{}
	for i, before := range released {
		after, crdsAfter := "the present CRDs", presentCRDs
		if i+1 < len(released) {
			next := released[i+1]
			after, crdsAfter = next.Version, func(t *testing.T) map[string]*definition { return crdsAt(t, next) }
		}
		t.Run(before.Version+" to "+after, func(t *testing.T) {
			for _, text := range breaks(t, crdsAt(t, before), crdsAfter(t)) {
				if key, reason, ok := acceptedBy(before.Version + " to " + after + ": " + text); ok {
					used[key] = true
					t.Logf("accepted, since %s: %s", reason, text)
					continue
				}
				t.Errorf("%s\nUndo the change, or deprecate first; a break that is wanted is listed in accepted, with the reason.", text)
			}
		})
	}
	for key := range accepted {
		assert.True(t, used[key] || t.Failed(), "accepted has an entry for what is not there any more: %s", key)
	}
}

// releases returns those with a commit.
func releases(t *testing.T) []release {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, releasesFile))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("NOT CHECKED: there is no %s, so no release to compare with", releasesFile)
	}
	require.NoError(t, err)
	var file struct {
		Releases []release `json:"releases"`
	}
	require.NoError(t, yaml.Unmarshal(data, &file), releasesFile)
	require.NotEmpty(t, file.Releases, "%s lists no release", releasesFile)
	var made []release
	for _, r := range file.Releases {
		if r.Commit != "" {
			made = append(made, r)
		}
	}
	return made
}

func presentCRDs(t *testing.T) map[string]*definition {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, crdFolder, "*.yaml"))
	require.NoError(t, err)
	var manifests [][]byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		manifests = append(manifests, data)
	}
	return parse(t, manifests)
}

// crdsAt reads the CRDs of a release from the git history.
func crdsAt(t *testing.T, r release) map[string]*definition {
	t.Helper()
	needCommit(t, r)
	list, err := git("ls-tree", "--name-only", r.Commit, crdFolder+"/")
	require.NoError(t, err)
	var manifests [][]byte
	for _, file := range strings.Fields(string(list)) {
		if path.Ext(file) != ".yaml" {
			continue
		}
		data, err := git("show", r.Commit+":"+file)
		require.NoError(t, err)
		manifests = append(manifests, data)
	}
	return parse(t, manifests)
}

// needCommit skips the test where the history is not there: in an archive of the sources, or in a shallow clone. In a
// whole clone a commit that is missing is an error of the releases file.
func needCommit(t *testing.T, r release) {
	t.Helper()
	if _, err := git("rev-parse", "--git-dir"); err != nil {
		t.Skipf("NOT CHECKED: these sources are no git clone, so the CRDs of release %s cannot be read: run this in a clone (%v)", r.Version, err)
	}
	// Looked at so that go test does not take the result of a shallow clone for that of the whole one.
	_, _ = os.Stat(filepath.Join(root, ".git", "shallow"))
	_, missing := git("cat-file", "-e", r.Commit+"^{commit}")
	if missing == nil {
		return
	}
	shallow, err := git("rev-parse", "--is-shallow-repository")
	require.NoError(t, err)
	if strings.TrimSpace(string(shallow)) == "true" {
		t.Skipf("NOT CHECKED: this shallow clone lacks the commit %s of release %s: run git fetch --unshallow", r.Commit, r.Version)
	}
	require.NoError(t, missing, "%s: release %s: there is no commit %s in this clone: correct it, or fetch the branch it is on",
		releasesFile, r.Version, r.Commit)
}

// git runs git in the top folder. A checkout that belongs to another user is still this one.
func git(arguments ...string) ([]byte, error) {
	top, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	command := exec.Command("git", append([]string{"-c", "safe.directory=" + top, "-C", top}, arguments...)...)
	var problem bytes.Buffer
	command.Stderr = &problem
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(problem.String()))
	}
	return output, nil
}

func parse(t *testing.T, manifests [][]byte) map[string]*definition {
	t.Helper()
	require.NotEmpty(t, manifests, "there are no CRDs")
	crds := map[string]*definition{}
	for _, manifest := range manifests {
		crd := &definition{}
		require.NoError(t, yaml.UnmarshalStrict(manifest, crd))
		crds[crd.Name] = crd
	}
	return crds
}
