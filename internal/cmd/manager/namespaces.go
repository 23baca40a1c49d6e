package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/dcnlab/spot-training-operator/controllers/unserved"
)

// namespacesVariable names the namespaces to serve. OLM sets it, by the name that operator-sdk has for it.
const namespacesVariable = "WATCH_NAMESPACE"

// namespaces are those that the manager serves; none stands for all.
type namespaces []string

func (n *namespaces) addFlags(flags *pflag.FlagSet) {
	flags.StringSliceVar((*[]string)(n), "namespaces", namesIn(os.Getenv(namespacesVariable)),
		"namespaces whose objects the manager acts on, separated by commas; empty: all. A manager of some namespaces serves TrainingJobs and "+
			"SpotInstanceJobs; other kinds need one of all namespaces (environment: "+namespacesVariable+")")
}

// namesIn are the names in a list that is separated by commas.
func namesIn(list string) []string {
	names := strings.Split(list, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// areAll says whether the manager serves all namespaces.
func (n namespaces) areAll() bool { return len(n) == 0 }

// validate names the flag that is wrong, and the way out.
func (n namespaces) validate(o options) error {
	for _, name := range n {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("--namespaces: %q is not the name of a namespace: %s (environment: %s)", name, strings.Join(problems, "; "), namespacesVariable)
		}
	}
	switch {
	case n.areAll():
		return nil
	case o.settings.RequireQueue:
		return errors.New("--require-queue: no job would start, since a manager with --namespaces admits none from a queue: leave out one of the two")
	case o.webhooks.certMode == certificateSelf:
		return errors.New("--webhook-cert-mode: self writes webhook configurations, which are for the whole cluster, and --namespaces limits the manager to some " +
			"namespaces: set it to files or off")
	}
	return nil
}

// caches are what a cache holds of kinds with a namespace.
func (n namespaces) caches() map[string]cache.Config {
	if n.areAll() {
		return nil
	}
	of := map[string]cache.Config{}
	for _, name := range n {
		of[name] = cache.Config{}
	}
	return of
}

// addUnserved has objects that take a manager of all namespaces say so.
func (s *setup) addUnserved(context.Context) error {
	s.GetLogger().Info("Manager is limited to namespaces", "namespaces", s.namespaces, "served", "TrainingJob, SpotInstanceJob",
		"notServed", "SpotInstanceVM, AIJob, Agent, AgentWorkflow, AIJobQueue, ComputeCluster, node agents, labels of nodes, storage migration")
	return unserved.SetupWithManager(s.Manager, clock.RealClock{})
}
