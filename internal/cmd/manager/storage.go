package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/dcnlab/spot-training-operator/internal/child"
	"github.com/dcnlab/spot-training-operator/internal/metrics"
	"github.com/dcnlab/spot-training-operator/internal/olm/operatorcondition"
	"github.com/dcnlab/spot-training-operator/internal/olm/storageversion"
)

// addStorageMigration adds what keeps stored objects in the storage version of their kind, and what keeps OLM from going
// on to the next version of the operator until that is done.
func addStorageMigration(mgr ctrl.Manager, o options, recorder events.EventRecorder) error {
	metadataClient, err := metadata.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("set up the client of the storage migration: %w", err)
	}
	// The manager's own client would set up a cache of all CRDs.
	direct, err := child.Uncached(mgr)
	if err != nil {
		return err
	}
	crds := storageversion.CRDs()
	progress := storageversion.NewProgress(crds)
	keeper, err := addOperatorCondition(mgr, direct, o, progress)
	if err != nil {
		return err
	}
	options := storageversion.Options{
		CRDs: crds, Client: direct, Metadata: metadataClient,
		Recorder: recorder, Metrics: metrics.NewStorageMigrations(ctrlmetrics.Registry),
		Progress: progress, QPS: o.migrationQPS, Resync: o.resync,
	}
	if keeper != nil {
		options.Hold = keeper.Hold
	}
	if err := storageversion.New(options).SetupWithManager(mgr); err != nil {
		return fmt.Errorf("set up the storage migration: %w", err)
	}
	return nil
}

// addOperatorCondition has OLM told whether the operator may be upgraded. It returns nil when OLM did not install it.
func addOperatorCondition(
	mgr ctrl.Manager, direct client.Client, o options, progress *storageversion.Progress,
) (*operatorcondition.Keeper, error) {
	key, installed, err := operatorcondition.FromEnvironment()
	if err != nil || !installed {
		return nil, err
	}
	keeper := operatorcondition.NewKeeper(operatorcondition.Options{
		Key: key, Client: direct,
		Verdict: progress.Verdict, Changed: progress.Changed(), Resync: o.resync,
	})
	needed := func(ctx context.Context) (operatorcondition.Verdict, error) {
		return storageversion.Needed(ctx, direct, storageversion.CRDs())
	}
	gate := operatorcondition.NewGate(keeper, needed, 2*time.Second)
	err = errors.Join(mgr.Add(keeper), mgr.Add(gate), mgr.AddReadyzCheck("upgradeable", gate.Check))
	if err != nil {
		return nil, fmt.Errorf("add what keeps the OperatorCondition: %w", err)
	}
	return keeper, nil
}
