package checks

import "slices"

// Level is a capability level of OLM.
type Level struct {
	// Name as the annotation capabilities of a ClusterServiceVersion has it.
	Name  string
	Tests []Test
	// Missing are questions that no test asks yet, since the operator cannot do these things. They keep the
	// ClusterServiceVersion from claiming the level.
	Missing []string
}

// All returns all tests, in the order in which they are listed.
func All() []Test {
	tests := Kinds()
	for _, level := range Levels() {
		tests = slices.Concat(tests, level.Tests)
	}
	return tests
}

// Levels returns the capability levels, the lowest first.
func Levels() []Level {
	return []Level{
		{Name: "Basic Install", Tests: []Test{
			{
				Name:     "level1-operator-ready",
				Question: "Is the Deployment of the ClusterServiceVersion in the cluster and available, and under OLM the ClusterServiceVersion Succeeded?",
				Run:      operatorReady,
			}, {
				Name:     "level1-kinds-served",
				Question: "Is the CustomResourceDefinition of every kind that the ClusterServiceVersion owns established, and does the API server serve the kind with its status?",
				Run:      kindsServed,
			}, {
				Name:     "level1-status-follows-spec",
				Question: "Does the status of a TrainingJob have conditions with reasons, and does observedGeneration follow every change of the spec?",
				Run:      statusFollowsSpec,
			}, {
				Name:     "level1-bad-input-rejected",
				Question: "Is bad input of every kind rejected by the API server, with a message that names the field?",
				Run:      badInputRejected,
			},
		}},
		{Name: "Seamless Upgrades", Tests: []Test{
			{
				Name:     "level2-upgrade-path",
				Question: "Does the ClusterServiceVersion say which earlier versions it is an upgrade from, unless it is the first release?",
				Run:      upgradePath,
			}, {
				Name:     "level2-upgradeable-condition",
				Question: "Does the operator tell OLM in its OperatorCondition that it can be upgraded now (Upgradeable=True)?",
				NeedsOLM: true,
				Run:      upgradeable,
			}, {
				Name:     "level2-stored-versions",
				Question: "Are all objects of every kind stored in its present storage version, so that the next version may drop an older one?",
				Run:      storedVersions,
			}, {
				Name:     "level2-image-pinned",
				Question: "Is the default worker image written into a TrainingJob that names none, so that an upgrade of the operator does not change existing jobs?",
				Run:      imagePinned,
			},
		}},
		// Backup and restore, which for training means checkpoints.
		{Name: "Full Lifecycle", Tests: []Test{
			{
				Name:     "level3-suspend-resume",
				Question: "Does suspending a TrainingJob save a checkpoint, and does the job continue from it, not from the first epoch, when it is resumed?",
				Timeout:  trainingTimeout,
				Run:      suspendResume,
			}, {
				Name:     "level3-delete-restore",
				Question: "Do the checkpoints outlive a TrainingJob that is deleted, and does a new one of that name continue from them?",
				Timeout:  trainingTimeout,
				Run:      deleteRestore,
			},
		}},
		{Name: "Deep Insights", Tests: []Test{
			{
				Name:     "level4-metrics",
				Question: "Does the manager serve the documented metrics, of itself and of a TrainingJob, to a client that may read them, and to no other?",
				Timeout:  trainingTimeout,
				Run:      metricsServed,
			}, {
				Name:     "level4-events",
				Question: "Is there an event for every transition of a TrainingJob: when it completes, when it is suspended, when it fails?",
				Timeout:  trainingTimeout,
				Run:      transitionsHaveEvents,
			}, {
				Name:     "level4-alerts",
				Question: "Does the bundle have alerts on the operator's metrics, each with a severity, a summary and a runbook?",
				Run:      alertsComplete,
			},
		}},
		{Name: "Auto Pilot", Tests: []Test{
			{
				Name:     "level5-healing",
				Question: "Does a TrainingJob that loses a worker restart by itself from its newest checkpoint, and complete?",
				Timeout:  trainingTimeout,
				Run:      healing,
			}, {
				Name:     "level5-scaling",
				Question: "Can an autoscaler change the number of workers of an elastic TrainingJob through its scale subresource while it trains, without losing progress?",
				Timeout:  trainingTimeout,
				Run:      scaling,
			},
		}, Missing: []string{
			"Does an elastic TrainingJob shrink and grow by itself with the capacity of the cluster?",
			"Is a worker that hangs detected and replaced?",
		}},
	}
}
