package build

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"

	mlv1 "github.com/dcnlab/spot-training-operator/api/ml/v1"
)

// notInJob are the fields of a spec that no Job is made from.
var notInJob = []string{"suspend", "ttlSecondsAfterFinished", "cleanupPolicy"}

// IsOf says whether this Job was made from the spec of the job as it is. Jobs of releases before 0.4 do not tell. One that NoteSpec marked
// also tells whether its pod template is still of that spec, and which fields differ: edits of others do not count.
func IsOf(workers *batchv1.Job, job *mlv1.TrainingJob) bool {
	of, told := workers.Annotations[mlv1.AnnotationGeneration]
	template, noted := workers.Spec.Template.Annotations[mlv1.AnnotationGeneration]
	if noted && template != of {
		return false
	}
	return !told || of == generationOf(job) || noted && len(EditedFields(workers, job)) == 0
}

// NoteSpec notes in a Job, and in its pod template, which spec they are made from.
func NoteSpec(workers *batchv1.Job, job *mlv1.TrainingJob) {
	digests, _ := json.Marshal(digestsOf(&job.Spec)) // a map of strings always has a JSON form
	workers.Annotations[mlv1.AnnotationSpecDigests] = string(digests)
	workers.Spec.Template.Annotations[mlv1.AnnotationGeneration] = generationOf(job)
}

// EditedFields are the fields of the spec that differ from those that NoteSpec noted in the Job.
func EditedFields(workers *batchv1.Job, job *mlv1.TrainingJob) (fields []string) {
	var was map[string]string
	if json.Unmarshal([]byte(workers.Annotations[mlv1.AnnotationSpecDigests]), &was) != nil {
		return []string{"spec"}
	}
	is := digestsOf(&job.Spec)
	for name := range is {
		if was[name] != is[name] {
			fields = append(fields, "spec."+name)
		}
	}
	for name := range was {
		if is[name] == "" {
			fields = append(fields, "spec."+name)
		}
	}
	slices.Sort(fields)
	return fields
}

// digestsOf is a digest of each field of a spec that is set.
func digestsOf(spec *mlv1.TrainingJobSpec) map[string]string {
	var fields map[string]json.RawMessage
	text, _ := json.Marshal(spec) // an object of the API always has a JSON form
	_ = json.Unmarshal(text, &fields)
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return slices.Contains(notInJob, name) })
	digests := map[string]string{}
	for name, value := range fields {
		hash := fnv.New32a()
		_, _ = hash.Write(value)
		digests[name] = fmt.Sprintf("%08x", hash.Sum32())
	}
	return digests
}

func generationOf(job *mlv1.TrainingJob) string { return strconv.FormatInt(job.Generation, 10) }
