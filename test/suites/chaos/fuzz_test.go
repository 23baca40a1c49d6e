package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// batch is how many objects there are at a time.
const batch = 50

// TestEachObjectIsAnsweredClearly creates objects as users might write them, right and wrong: what is refused names the field, what is
// accepted gets a condition that says where it stands, and no controller panics or repeats an error when all is gone.
//
//	FUZZ_OBJECTS  their number. Default 200.
//	FUZZ_SEED     of the generator. Default 1.
func TestEachObjectIsAnsweredClearly(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	t.Parallel()
	count, seed := number(t, "FUZZ_OBJECTS", 200), number(t, "FUZZ_SEED", 1)
	w := newWorld(t, newTally(), newTally(invariants...))
	g := generator{rand.New(rand.NewPCG(seed, 4))}
	all := kinds(t)
	outcomes := newTally(outcomeNames(all)...)
	for made := uint64(0); made < count; made += batch {
		w.fuzz(g, all, outcomes, fmt.Sprintf("fuzz-%d", made))
		if wrong := w.noted(); len(wrong) > 0 {
			t.Fatalf("seed %d, objects from number %d:\n%s\n%s", seed, made, strings.Join(wrong, "\n"), w.keepLogs(seed))
		}
	}
	w.repeatsNoError()
	w.logs()
	assert.Empty(t, w.noted())
	t.Logf("outcomes:\n%s", outcomes)
}

const (
	accepted = "accepted, with a condition"
	refused  = "refused, naming the field"
)

func outcomeNames(all []*kind) []string {
	var names []string
	for _, k := range all {
		names = append(names, k.String()+" "+accepted, k.String()+" "+refused)
	}
	return names
}

func number(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, variable)
	return n
}

// fuzz creates a batch of objects in a namespace, waits until each says where it stands, and deletes all.
func (w *world) fuzz(g generator, all []*kind, outcomes *tally, namespace string) {
	ctx := w.t.Context()
	require.NoError(w.t, w.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	var objects []*unstructured.Unstructured
	for i := range batch {
		k := pick(g, all)
		object := g.object(k, namespace, fmt.Sprintf("%s-%d", namespace, i))
		text, _ := object.MarshalJSON()
		if err := w.Create(ctx, object, client.FieldValidation("Strict")); err != nil {
			w.clear(k, err, string(text))
			outcomes.add(k.String() + " " + refused)
			continue
		}
		outcomes.add(k.String() + " " + accepted)
		objects = append(objects, object)
	}
	if missing := w.await(func(ctx context.Context) (string, error) { return w.unexplained(ctx, objects) }); missing != "" {
		w.note("waited %s for a condition of %s", patience, missing)
	}
	for _, object := range objects {
		if err := client.IgnoreNotFound(w.Delete(ctx, object)); err != nil {
			w.note("delete: %v", err)
		}
	}
	if err := w.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		w.note("delete: %v", err)
	}
	missing := w.await(func(ctx context.Context) (string, error) {
		for _, object := range objects {
			if err := w.Get(ctx, client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				text, _ := object.MarshalJSON()
				return string(text), err
			}
		}
		return "", nil
	})
	if missing != "" {
		w.note("waited %s for the end of %s", patience, missing)
	}
}

// clear checks that a refusal says which field is wrong.
func (w *world) clear(k *kind, err error, text string) {
	switch {
	case !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) && !apierrors.IsForbidden(err):
		w.note("%s is answered by %v: %s", k, err, text)
	case !strings.Contains(err.Error(), "spec"):
		w.note("%s is refused without the name of a field: %v: %s", k, err, text)
	}
}

// unexplained names an object without a condition that has a reason.
func (w *world) unexplained(ctx context.Context, objects []*unstructured.Unstructured) (string, error) {
	for _, object := range objects {
		err := w.Get(ctx, client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) { // its time to live is over
			continue
		}
		if err != nil {
			return "", err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		explained := false
		for _, condition := range conditions {
			reason, _, _ := unstructured.NestedString(condition.(map[string]any), "reason")
			explained = explained || reason != ""
		}
		if !explained {
			text, _ := object.MarshalJSON()
			return string(text), nil
		}
	}
	return "", nil
}

// repeatsNoError checks that a manager without objects logs no error.
func (w *world) repeatsNoError() {
	w.pause(2 * time.Second)
	before := w.errorsLogged()
	w.pause(10 * time.Second)
	if after := w.errorsLogged(); len(after) > len(before) {
		w.note("without any object the manager logs errors: %s", strings.Join(after[len(before):], ""))
	}
}

func (w *world) errorsLogged() []string {
	var lines []string
	files, _ := filepath.Glob(filepath.Join(w.folder, "manager*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, `"level":"error"`) || strings.Contains(line, `"level":"ERROR"`) {
				lines = append(lines, line)
			}
		}
	}
	return lines
}
