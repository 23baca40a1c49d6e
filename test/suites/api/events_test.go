package api_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dcnlab/spot-training-operator/internal/reporting"
	"github.com/dcnlab/spot-training-operator/test/harness/apiserver"
	"github.com/dcnlab/spot-training-operator/test/harness/managers"
)

// What the kubelet keeps of the last words of a program is four times as long as a note may be.
func TestEveryEventIsTaken(t *testing.T) {
	var refused atomic.Int32
	log := funcr.New(func(_, text string) {
		if strings.Contains(text, "vent") {
			refused.Add(1)
			t.Log(text)
		}
	}, funcr.Options{})
	var answered atomic.Int32 // events of the namespace that goes
	m := managers.New(t, restConfig, scheme, cache.Options{}, func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(request)
			if strings.Contains(request.URL.Path, "/namespaces/goes-") && strings.HasSuffix(request.URL.Path, "/events") {
				answered.Add(1)
			}
			return answer, err
		})
	})
	recorder, err := reporting.NewRecorder(klog.NewContext(m.Context, log), m, "test")
	require.NoError(t, err)
	m.Run()
	stays, goes := namespaceOf(t, "stays"), namespaceOf(t, "goes")
	require.NoError(t, k8s.Delete(t.Context(), goes))
	of := func(namespace *corev1.Namespace) *corev1.ConfigMap {
		return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "job", UID: "1"}}
	}

	recorder.Eventf(of(goes), nil, "Warning", "Failed", "Fail", "%s", "its namespace goes")
	for reason, note := range map[string]string{
		"Traceback": strings.Repeat(`File "train.py", line 12, in forward `, 110) + "RuntimeError: CUDA error",
		"OneWord":   strings.Repeat("x", 4096),
		"Wide":      strings.Repeat("数字 ", 1365),
	} {
		recorder.Eventf(of(stays), nil, "Warning", reason, "Fail", "%s", note)
	}

	var list eventsv1.EventList
	apiserver.Await(t, "the recording of all events", func() bool {
		require.NoError(t, k8s.List(t.Context(), &list, client.InNamespace(stays.Name)))
		return len(list.Items) == 3 && answered.Load() > 0 || refused.Load() > 0
	})
	assert.Len(t, list.Items, 3)
	for _, event := range list.Items {
		if event.Reason == "Traceback" {
			assert.True(t, strings.HasSuffix(event.Note, "RuntimeError: CUDA error"), event.Note)
		}
	}
	assert.Zero(t, refused.Load(), "the API server refused none")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func namespaceOf(t *testing.T, prefix string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}
	require.NoError(t, k8s.Create(t.Context(), namespace))
	return namespace
}
