package v1alpha1

// Annotations and labels of AIJobs.
const (
	// AnnotationRequeue on an AIJob in phase DeadLetter puts it back into its queue with all its retries. The operator
	// removes it once that is done.
	AnnotationRequeue = "aiplatform.example.com/requeue"
	// LabelAIJob on every child of an AIJob is the name of the AIJob.
	LabelAIJob = "aiplatform.example.com/job"
	// LabelQueue on an AIJob and its pods is the name of the queue.
	LabelQueue = "aiplatform.example.com/queue"
	// AnnotationUser on an AIJob or a TrainingJob is the user whose limits in its queue count. The operator sets it from the request
	// that creates the job.
	AnnotationUser = "aiplatform.example.com/user"
	// LabelServiceJob on an AIJob that the job service made is the ID of its job.
	LabelServiceJob = "aiplatform.example.com/service-job"
	// LabelWorkflow on an AIJob is the name of the AgentWorkflow that made it.
	LabelWorkflow = "aiplatform.example.com/workflow"
	// LabelWorkerPool on the Deployment of pooled workers and on their pods is the name of the queue.
	LabelWorkerPool = "aiplatform.example.com/worker-pool"
	// LabelStage on an AIJob is the stage of the AgentWorkflow for which it was made.
	LabelStage = "aiplatform.example.com/stage"
	// LabelWorkflowRun on an AIJob is the number of the start of the AgentWorkflow for which it was made.
	LabelWorkflowRun = "aiplatform.example.com/workflow-run"
	// AnnotationRetriesBefore on an AIJob is the number of retries that do not count any more, because the job was requeued from
	// DeadLetter after them. The operator sets it.
	AnnotationRetriesBefore = "aiplatform.example.com/retries-before-requeue"
)

// Labels of the pods of an AIJob, beside LabelAIJob and LabelQueue.
const (
	// LabelMember is the index of a pod in its job, from 0.
	LabelMember = "aiplatform.example.com/member"
	// LabelAttempt is the try that a pod belongs to, from 0. Each new try has a higher number, whatever the last one ended of.
	LabelAttempt = "aiplatform.example.com/attempt"
)
