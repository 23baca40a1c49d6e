package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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

const (
	// batch is how many objects are created together, and writers how many at the same time.
	batch, writers = 200, 8
	// fullRun is how many objects are enough for each outcome of each kind.
	fullRun = 1000
	// tooMany unclear answers end the run.
	tooMany = 20
	// keptNamespace has the objects that stay for the whole run.
	keptNamespace = "fuzz-kept"
)

// TestEachObjectIsAnsweredClearly creates objects as users might write them, right and wrong, and updates those that are accepted: what is
// refused names the field, what is accepted gets a condition that says where it stands, of its last generation. Some objects stay for the whole
// run. No controller panics or repeats an error forever, neither of those that stay nor when all is gone.
//
//	FUZZ_OBJECTS  their number. Default 200.
//	FUZZ_SEED     of the generator. Default 1.
//	FUZZ_FIRST    the number of the first object, to begin with a batch that a failure names. Default 0.
func TestEachObjectIsAnsweredClearly(t *testing.T) {
	ctrl.SetLogger(logr.Discard())
	t.Parallel()
	count, seed, first := number(t, "FUZZ_OBJECTS", 200), number(t, "FUZZ_SEED", 1), number(t, "FUZZ_FIRST", 0)
	all := kinds(t)
	f := &fuzz{world: newWorld(t, newTally(), newTally(invariants...)), seed: seed, kinds: all, outcomes: newOutcomes(all), keepOne: max(10, count/200)}
	f.createNamespace(keptNamespace)
	var wrong []string
	for from := first; from < first+count; from += batch {
		began := time.Now()
		stuck := f.batch(from, min(from+batch, first+count))
		for _, one := range f.noted() {
			wrong = append(wrong, fmt.Sprintf("objects from number %d: %s", from, one))
		}
		if stuck || len(wrong) >= tooMany {
			t.Fatalf("seed %d: %s\n%s\noutcomes:\n%s", seed, strings.Join(wrong, "\n"), f.keepLogs(seed), f.outcomes)
		}
		t.Logf("objects from number %d: %s", from, time.Since(began).Round(time.Second))
	}
	f.leaving.Wait()
	window := 10 * time.Second
	if count >= fullRun {
		window = time.Minute
	}
	f.repeatsNoError(window)
	f.remove(f.kept, keptNamespace)
	f.leaving.Wait()
	f.logsNoError()
	f.logs()
	wrong = append(wrong, f.noted()...)
	t.Logf("seed %d, %d objects; outcomes:\n%s", seed, count, f.outcomes)
	assert.Empty(t, wrong, "seed %d: %s", seed, f.keptLogs(wrong))
	if count >= fullRun {
		assert.Empty(t, f.outcomes.never(), "outcomes that were never seen")
	}
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

// fuzz is a run.
type fuzz struct {
	*world

	seed     uint64
	kinds    []*kind
	outcomes *outcomes

	keepOne uint64 // of so many objects
	kept    []*fuzzed
	leaving sync.WaitGroup // what is deleted, and watched till it is gone
}

// fuzzed is an object of a run.
type fuzzed struct {
	number     uint64
	kind       *kind
	generator  generator
	object     *unstructured.Unstructured // as it was sent last
	taken      bool                       // by the API server, when it was sent last
	generation int64                      // that it got then
	gone       bool                       // because its time to live is over
}

func (o *fuzzed) namespace() string { return o.object.GetNamespace() }

func (o *fuzzed) String() string {
	text, _ := o.object.MarshalJSON()
	return fmt.Sprintf("object %d: %s", o.number, text)
}

// batch has a batch of objects created, updated and deleted. It says whether some of them did not come to where they are to be.
func (f *fuzz) batch(from, to uint64) (stuck bool) {
	namespace := fmt.Sprintf("fuzz-%d", from)
	f.createNamespace(namespace)
	all := f.generate(from, to, namespace)
	inParallel(all, f.create)
	taken := slices.DeleteFunc(slices.Clone(all), func(o *fuzzed) bool { return !o.taken })
	stuck = f.awaitConditions(taken, accepted)
	inParallel(taken, f.update)
	stuck = f.awaitConditions(taken, updated) || stuck

	f.leaving.Wait() // one batch leaves while the next one comes
	leave := slices.DeleteFunc(slices.Clone(taken), f.keeps)
	f.kept = append(f.kept, slices.DeleteFunc(slices.Clone(taken), func(o *fuzzed) bool { return !f.keeps(o) })...)
	f.remove(leave, namespace)
	return stuck
}

func (f *fuzz) keeps(o *fuzzed) bool { return o.number%f.keepOne == 0 }

// generate makes the objects of a batch. Each depends on its number alone, and on the names of the others.
func (f *fuzz) generate(from, to uint64, namespace string) (all []*fuzzed) {
	names := map[string][]string{}
	for number := from; number < to; number++ {
		o := &fuzzed{number: number, generator: generator{rand.New(rand.NewPCG(f.seed, number)), names}}
		o.kind = pick(o.generator, f.kinds)
		o.object = &unstructured.Unstructured{}
		o.object.SetName(o.generator.name(number))
		names[o.kind.String()] = append(names[o.kind.String()], o.object.GetName())
		all = append(all, o)
	}
	for _, o := range all {
		in := namespace
		if f.keeps(o) {
			in = keptNamespace
		}
		o.object = o.generator.object(o.kind, in, o.object.GetName())
	}
	return all
}

func (f *fuzz) createNamespace(name string) {
	require.NoError(f.t, f.Create(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
}

// inParallel does something with all objects, with several at the same time.
func inParallel(all []*fuzzed, do func(*fuzzed)) {
	next := make(chan *fuzzed)
	var running sync.WaitGroup
	for range writers {
		running.Go(func() {
			for o := range next {
				do(o)
			}
		})
	}
	for _, o := range all {
		next <- o
	}
	close(next)
	running.Wait()
}

func (f *fuzz) create(o *fuzzed) {
	sent := o.object.DeepCopy()
	err := f.Create(f.t.Context(), sent, client.FieldValidation("Strict"))
	for try := 0; try < 50 && isBusy(err); try++ {
		sent = o.object.DeepCopy()
		if err = f.Create(f.t.Context(), sent, client.FieldValidation("Strict")); apierrors.IsAlreadyExists(err) {
			err = f.Get(f.t.Context(), client.ObjectKeyFromObject(sent), sent)
		}
	}
	f.answered(o, err, sent, refused)
}

// isBusy says whether the API server had no time for a request, which is no answer.
func isBusy(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err)
}

// answered judges the answer to a write.
func (f *fuzz) answered(o *fuzzed, err error, sent *unstructured.Unstructured, outcome string) {
	if o.taken = err == nil; o.taken {
		o.generation = sent.GetGeneration()
		return
	}
	if lacks := unclear(o.kind, o.object, err); lacks != "" {
		f.note("the answer is not clear, as %s: %v: %s", lacks, err, o)
		return
	}
	f.outcomes.add(o.kind, outcome)
}

// update changes an object as a user does, who tries again when it was changed meanwhile.
func (f *fuzz) update(o *fuzzed) {
	if o.gone {
		return
	}
	generator := generator{names: o.generator.names}
	for range 50 {
		is := o.object.DeepCopy()
		err := f.Get(f.t.Context(), client.ObjectKeyFromObject(is), is)
		if err == nil {
			generator.random = rand.New(rand.NewPCG(f.seed, ^o.number)) // the same change each time
			o.object = generator.update(o.kind, is)
			is = o.object.DeepCopy()
			err = f.Update(f.t.Context(), is, client.FieldValidation("Strict"))
		}
		switch {
		case apierrors.IsNotFound(err):
			f.isGone(o)
			return
		case !apierrors.IsConflict(err) && !isBusy(err):
			f.answered(o, err, is, updateRefused)
			return
		}
	}
	f.note("it is changed so often that no update succeeds: %s", o)
}

// isGone notes an object that should be there.
func (f *fuzz) isGone(o *fuzzed) {
	if o.gone = true; !o.kind.expires() {
		f.note("it is gone, and no user has deleted it: %s", o)
	}
}

// awaitConditions waits until each object that was taken says where it stands, and counts it. It says whether some do not.
func (f *fuzz) awaitConditions(all []*fuzzed, outcome string) (stuck bool) {
	waiting := slices.DeleteFunc(slices.Clone(all), func(o *fuzzed) bool { return o.gone || !o.taken })
	missing := f.await(func(ctx context.Context) (first string, err error) {
		present := f.reader(ctx)
		waiting = slices.DeleteFunc(waiting, func(o *fuzzed) bool {
			is, failed := present(o)
			if failed != nil {
				err = failed
				return false
			}
			if is == nil {
				f.isGone(o)
				return true
			}
			lacks := o.lacks(is)
			if lacks == "" {
				f.outcomes.add(o.kind, outcome)
				return true
			}
			if first == "" {
				text, _ := is.MarshalJSON()
				first = fmt.Sprintf("%s of %s", lacks, text)
			}
			return false
		})
		return first, err
	})
	if missing != "" {
		f.note("waited %s for %s, and %d objects in all", patience, missing, len(waiting))
	}
	return missing != ""
}

// reader reads objects, of each kind all at once.
func (f *fuzz) reader(ctx context.Context) func(*fuzzed) (*unstructured.Unstructured, error) {
	type listed struct {
		objects map[string]*unstructured.Unstructured
		err     error
	}
	lists := map[string]listed{}
	return func(o *fuzzed) (*unstructured.Unstructured, error) {
		key := o.kind.String() + " " + o.namespace()
		list, known := lists[key]
		if !known {
			objects := &unstructured.UnstructuredList{}
			objects.SetGroupVersionKind(o.object.GroupVersionKind())
			list.err = f.List(ctx, objects, client.InNamespace(o.namespace()))
			list.objects = map[string]*unstructured.Unstructured{}
			for i := range objects.Items {
				list.objects[objects.Items[i].GetName()] = &objects.Items[i]
			}
			lists[key] = list
		}
		return list.objects[o.object.GetName()], list.err
	}
}

// lacks names what an object lacks to say where it stands.
func (o *fuzzed) lacks(is *unstructured.Unstructured) string {
	observed, _, _ := unstructured.NestedInt64(is.Object, "status", "observedGeneration")
	if o.kind.observes() && observed < o.generation {
		return fmt.Sprintf("the status of generation %d", o.generation)
	}
	conditions, _, _ := unstructured.NestedSlice(is.Object, "status", "conditions")
	for _, condition := range conditions {
		reason, _, _ := unstructured.NestedString(condition.(map[string]any), "reason")
		message, _, _ := unstructured.NestedString(condition.(map[string]any), "message")
		if reason != "" && message != "" {
			return ""
		}
	}
	return "a condition with a reason and a message"
}

// remove deletes objects and their namespace, and has it watched that they go.
func (f *fuzz) remove(all []*fuzzed, namespace string) {
	inParallel(all, func(o *fuzzed) {
		if err := client.IgnoreNotFound(f.Delete(f.t.Context(), o.object.DeepCopy())); err != nil {
			f.note("delete: %v", err)
		}
	})
	if err := f.Delete(f.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		f.note("delete: %v", err)
	}
	f.leaving.Go(func() {
		missing := f.await(func(ctx context.Context) (string, error) {
			present := f.reader(ctx)
			for _, o := range all {
				is, err := present(o)
				if err != nil {
					return "", err
				}
				if is != nil {
					text, _ := is.MarshalJSON()
					return string(text), nil
				}
			}
			return "", nil
		})
		if missing != "" && f.t.Context().Err() == nil {
			f.note("waited %s for the end of %s", patience, missing)
		}
	})
}

// repeatsNoError checks that the manager logs no error forever of the objects that stay.
func (f *fuzz) repeatsNoError(window time.Duration) {
	from := time.Now()
	f.pause(window)
	middle := time.Now()
	f.pause(window)
	for _, one := range forever(f.errorsLogged(), from, middle, time.Now()) {
		f.note("while no user does anything, an error is logged forever: %s", one)
	}
}

// logsNoError checks that a manager without objects logs no error.
func (f *fuzz) logsNoError() {
	f.pause(2 * time.Second)
	before := len(f.errorsLogged())
	f.pause(5 * time.Second)
	for _, one := range f.errorsLogged()[before:] {
		f.note("without any object the manager logs an error: %s", one.what)
	}
}

// keptLogs keeps the logs when something was wrong.
func (f *fuzz) keptLogs(wrong []string) string {
	if len(wrong) == 0 {
		return ""
	}
	return f.keepLogs(f.seed)
}
