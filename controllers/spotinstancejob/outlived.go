package spotinstancejob

import "github.com/dcnlab/spot-training-operator/internal/podend"

// outlived are the pods of the replicas whose containers of the template have ended while others go on. A Job of several pods is left to its
// controller: it would stop one of those that work when an ended one of them seems to run again.
func (o observed) outlived() []podend.Outlived {
	if !o.job.HasOnePod() {
		return nil
	}
	template := &o.job.Spec.JobTemplate.Spec.Template.Spec
	var own []string
	for i := range template.Containers {
		own = append(own, template.Containers[i].Name)
	}
	return podend.OutlivedOf(o.pods, template.RestartPolicy, own...)
}
