package spotinstancevm

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/log"

	spotv1alpha1 "github.com/dcnlab/spot-training-operator/api/spot/v1alpha1"
	"github.com/dcnlab/spot-training-operator/internal/cloud"
	"github.com/dcnlab/spot-training-operator/internal/cloud/inventory"
)

// answers is a provider that answers each request with the next of a list, after three seconds.
type answers struct {
	cloud.Provider

	clock *clocktesting.FakeClock
	owner inventory.Owner
	list  []error
}

func (a *answers) Get(_ context.Context, zone, name string) (*cloud.Instance, error) {
	return &cloud.Instance{Name: name, Zone: zone, ID: "42", Labels: a.owner.Labels()}, nil
}

func (a *answers) next() (cloud.Operation, error) {
	a.clock.Step(3 * time.Second)
	err := a.list[0]
	a.list = a.list[1:]
	return cloud.Operation{Name: "op"}, err
}

func (a *answers) Create(context.Context, cloud.InstanceSpec) (cloud.Operation, error) {
	return a.next()
}

func (a *answers) Delete(context.Context, string, string, string) (cloud.Operation, error) {
	return a.next()
}

func (a *answers) Operation(context.Context, cloud.Operation) (cloud.Operation, error) {
	operation, err := a.next()
	operation.Done, operation.Err = true, err
	return operation, nil
}

type noMetadata struct{ Joining }

func (noMetadata) Metadata(context.Context, *spotv1alpha1.SpotInstanceVM, string) (map[string]string, error) {
	return nil, nil
}

func TestTheLogNamesEachCallThatSpendsOrSavesMoneyOnce(t *testing.T) {
	lost, stockout := &cloud.Error{Class: cloud.Transient, Message: "no answer"}, &cloud.Error{Class: cloud.Stockout, Message: "none left"}
	const about = `"instance"="t4-x" "zone"="a" "machineType"="n1-standard-4" "model"="spot" `
	const created, deleted = `"reason"="pods of SpotInstanceJob/bert have no node" `, `"reason"="no pod of a job was on it" `
	for name, test := range map[string]struct {
		calls   []actionKind
		answers []error
		want    []string
	}{
		"a creation": {
			[]actionKind{actCreate}, []error{nil},
			[]string{`"Asked provider to create instance" ` + about + created + `"duration"="3s"`},
		},
		"a deletion": {
			[]actionKind{actDelete}, []error{nil},
			[]string{`"Asked provider to delete instance" ` + about + deleted + `"duration"="3s"`},
		},
		"a request that is repeated": {
			[]actionKind{actCreate, actCreate, actCreate}, []error{lost, lost, nil},
			[]string{
				`"Failed to create instance" ` + about + created + `"duration"="3s" "class"="Transient" "error"="no answer"`,
				`"Asked provider to create instance" ` + about + created + `"duration"="3s"`,
			},
		},
		"a refusal by the operation": {
			[]actionKind{actCreate, actAwait}, []error{nil, stockout},
			[]string{
				`"Asked provider to create instance" ` + about + created + `"duration"="3s"`,
				`"Failed to create instance" ` + about + created + `"duration"="6s" "class"="Stockout" "error"="none left"`,
			},
		},
		"an operation that succeeds": {
			[]actionKind{actDelete, actAwait}, []error{nil, nil},
			[]string{`"Asked provider to delete instance" ` + about + deleted + `"duration"="3s"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []string
			ctx := log.IntoContext(t.Context(), funcr.New(func(_, line string) {
				lines = append(lines, strings.TrimPrefix(line, `"level"=0 "msg"=`))
			}, funcr.Options{}))
			now := clocktesting.NewFakeClock(noon)
			r := &Reconciler{Clock: now, Pace: defaultPace, Joining: noMetadata{}, cluster: "this"}
			s := aScene()
			entry := &spotv1alpha1.ProvisionedInstance{Name: "t4-x", Zone: "a", AssignedJob: "SpotInstanceJob/bert", Message: "no pod of a job was on it"}
			provider := &answers{clock: now, owner: r.ownerOf(s.vm), list: test.answers}
			for _, kind := range test.calls {
				_, err := r.do(ctx, step{action: action{kind, "t4-x"}, vm: s.vm, entry: entry, machineType: s.machineTypeOf("t4-x", entry), provider: provider})
				require.NoError(t, err)
			}
			assert.Equal(t, test.want, lines)
		})
	}
}
