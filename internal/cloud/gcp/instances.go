package gcp

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/dcnlab/spot-training-operator/internal/cloud"
)

// The fields of answers that are read: the rest, such as the metadata with its scripts, is not even sent.
const (
	instanceFields = "id,name,zone,status,statusMessage,creationTimestamp,machineType,labels,scheduling(provisioningModel)," +
		"networkInterfaces(networkIP,accessConfigs(natIP))"
	operationFields = "name,zone,insertTime,status,error,httpErrorStatusCode,httpErrorMessage"
)

// Create asks for an instance.
func (p *Provider) Create(ctx context.Context, spec cloud.InstanceSpec) (cloud.Operation, error) {
	op, err := ask(ctx, p, aboutCreation, p.service.Instances.Insert(p.project, spec.Zone, instanceRequest(p.project, spec)).
		RequestId(spec.RequestID).Fields(operationFields).Context(ctx).Do)
	return operationOf(spec.Zone, op), err
}

// Delete asks for the end of an instance.
func (p *Provider) Delete(ctx context.Context, zone, instance, requestID string) (cloud.Operation, error) {
	op, err := ask(ctx, p, aboutInstance, p.service.Instances.Delete(p.project, zone, instance).
		RequestId(requestID).Fields(operationFields).Context(ctx).Do)
	return operationOf(zone, op), err
}

// Get reads one instance.
func (p *Provider) Get(ctx context.Context, zone, instance string) (*cloud.Instance, error) {
	found, err := ask(ctx, p, aboutInstance, p.service.Instances.Get(p.project, zone, instance).Fields(instanceFields).Context(ctx).Do)
	if err != nil {
		return nil, err
	}
	is := instanceOf(zone, found)
	return &is, nil
}

// List reads the instances of a zone that have all of the labels.
func (p *Provider) List(ctx context.Context, zone string, labels map[string]string) ([]cloud.Instance, error) {
	call := p.service.Instances.List(p.project, zone).MaxResults(500).
		Fields("nextPageToken", googleapi.Field("items("+instanceFields+")")).Context(ctx)
	if len(labels) > 0 {
		call.Filter(labelFilter(labels))
	}
	var all []cloud.Instance
	for {
		page, err := ask(ctx, p, aboutCatalog, call.Do)
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			all = append(all, instanceOf(zone, item))
		}
		if page.NextPageToken == "" {
			return all, nil
		}
		call.PageToken(page.NextPageToken)
	}
}

// labelFilter is the expression for instances that have all of the labels.
func labelFilter(labels map[string]string) string {
	var terms []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		terms = append(terms, "(labels."+name+" = "+strconv.Quote(labels[name])+")")
	}
	return strings.Join(terms, " AND ")
}

// Operation reads how far an operation has come.
func (p *Provider) Operation(ctx context.Context, operation cloud.Operation) (cloud.Operation, error) {
	op, err := ask(ctx, p, aboutOperation, p.service.ZoneOperations.Get(p.project, operation.Zone, operation.Name).
		Fields(operationFields).Context(ctx).Do)
	if err != nil {
		return operation, err
	}
	return operationOf(operation.Zone, op), nil
}

// Preemptions reads which instances of a zone were taken back since a time.
func (p *Provider) Preemptions(ctx context.Context, zone string, since time.Time) ([]cloud.Preemption, error) {
	call := p.service.ZoneOperations.List(p.project, zone).MaxResults(500).Filter(`operationType = "compute.instances.preempted"`).
		Fields("nextPageToken", "items(targetLink,insertTime,startTime)").Context(ctx)
	var all []cloud.Preemption
	for {
		page, err := ask(ctx, p, aboutCatalog, call.Do)
		if err != nil {
			return nil, err
		}
		for _, op := range page.Items {
			// The time is compared here: Google's filters compare it as text, with the offset of its own time zone.
			if at := parseTime(op.InsertTime); !at.Before(since) {
				all = append(all, cloud.Preemption{Instance: path.Base(op.TargetLink), Time: at})
			}
		}
		if page.NextPageToken == "" {
			slices.SortStableFunc(all, func(a, b cloud.Preemption) int { return a.Time.Compare(b.Time) })
			return all, nil
		}
		call.PageToken(page.NextPageToken)
	}
}

// HostKeys reads the SSH host keys that an instance has published.
func (p *Provider) HostKeys(ctx context.Context, zone, instance string) ([]string, error) {
	found, err := ask(ctx, p, aboutInstance, p.service.Instances.GetGuestAttributes(p.project, zone, instance).
		QueryPath("hostkeys/").Fields("queryValue").Context(ctx).Do)
	if hasNoGuestAttributes(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var lines []string
	if found.QueryValue != nil {
		for _, item := range found.QueryValue.Items {
			lines = append(lines, item.Key+" "+item.Value)
		}
	}
	return lines, nil
}

func operationOf(zone string, op *compute.Operation) cloud.Operation {
	if op == nil {
		return cloud.Operation{Zone: zone}
	}
	result := cloud.Operation{Name: op.Name, Zone: zone, Began: parseTime(op.InsertTime), Done: op.Status == "DONE"}
	if result.Done {
		result.Err = classifyOperation(op)
	}
	return result
}

func instanceOf(zone string, i *compute.Instance) cloud.Instance {
	instance := cloud.Instance{
		Name: i.Name, Zone: zone, ID: strconv.FormatUint(i.Id, 10), State: i.Status, StatusMessage: i.StatusMessage,
		MachineType: path.Base(i.MachineType), Labels: i.Labels, Created: parseTime(i.CreationTimestamp),
		Spot: i.Scheduling != nil && i.Scheduling.ProvisioningModel == "SPOT",
	}
	for _, network := range i.NetworkInterfaces {
		instance.InternalIP = cmp.Or(instance.InternalIP, network.NetworkIP)
		for _, access := range network.AccessConfigs {
			instance.ExternalIP = cmp.Or(instance.ExternalIP, access.NatIP)
		}
	}
	return instance
}

func parseTime(text string) time.Time {
	at, _ := time.Parse(time.RFC3339, text) // zero for what is none
	return at.UTC()
}
