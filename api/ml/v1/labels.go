package v1

// Labels and annotations of TrainingJobs and their children.
const (
	// LabelTrainingJob on every child is the name of its TrainingJob.
	LabelTrainingJob = "training-job"
	// LabelTrainingJobCompact is the same under the name that some tools look for.
	LabelTrainingJobCompact = "trainingjob"
	// LabelReplicaID on a worker pod is its replica, from 0.
	LabelReplicaID = "replica-id"
	// AnnotationGangScheduler on a TrainingJob says who starts its workers together: volcano, coscheduling, kubernetes or
	// none. Without it spec.scheduling.schedulerName says it. On the Job it is who does.
	AnnotationGangScheduler = "ml.example.com/gang-scheduler"
	// AnnotationAttempt on the Job and its pods is the number of restarts before it.
	AnnotationAttempt = "ml.example.com/restart-attempt"
	// AnnotationStart on the Job and its pods is the number of times that workers of the TrainingJob were started before. Unlike
	// that of restarts it is another one when a job is resumed, so that no two Jobs have the same.
	AnnotationStart = "ml.example.com/start"
	// AnnotationGeneration on the Job is the metadata.generation of the TrainingJob that it was made from. The pod template of a Job in a queue of
	// Kueue has it too: at an eviction Kueue restores the template that it knows, which may be older.
	AnnotationGeneration = "ml.example.com/generation"
	// AnnotationSpecDigests on a Job in a queue of Kueue has a digest of each field of the spec that it was made from.
	AnnotationSpecDigests = "ml.example.com/spec-digests"
	// AnnotationIsolated on the Job is "true" when its pods were started with the NetworkPolicy of the TrainingJob.
	AnnotationIsolated = "ml.example.com/isolated"
	// AnnotationCheckpointNow on a TrainingJob asks for a checkpoint at once. Each new value is one request; its outcome
	// is in status.checkpoint.request.
	AnnotationCheckpointNow = "ml.example.com/checkpoint-now"
)
