package gcp

import (
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
	operationFields = "name,zone,status,error,httpErrorStatusCode,httpErrorMessage"
)

// Create asks for an instance.
func (p *Provider) Create(ctx context.Context, spec cloud.InstanceSpec) (cloud.Operation, error) {
	var op *compute.Operation
	err := p.do(ctx, aboutCreation, func(ctx context.Context) (err error) {
		op, err = p.service.Instances.Insert(p.project, spec.Zone, instanceRequest(p.project, spec)).
			RequestId(spec.RequestID).Fields(operationFields).Context(ctx).Do()
		return err
	})
	return operationOf(spec.Zone, op), err
}

// Delete asks for the end of an instance.
func (p *Provider) Delete(ctx context.Context, zone, name, requestID string) (cloud.Operation, error) {
	var op *compute.Operation
	err := p.do(ctx, aboutInstance, func(ctx context.Context) (err error) {
		op, err = p.service.Instances.Delete(p.project, zone, name).
			RequestId(requestID).Fields(operationFields).Context(ctx).Do()
		return err
	})
	return operationOf(zone, op), err
}

// Get reads one instance.
func (p *Provider) Get(ctx context.Context, zone, name string) (*cloud.Instance, error) {
	var found *compute.Instance
	err := p.do(ctx, aboutInstance, func(ctx context.Context) (err error) {
		found, err = p.service.Instances.Get(p.project, zone, name).Fields(instanceFields).Context(ctx).Do()
		return err
	})
	if err != nil {
		return nil, err
	}
	instance := instanceOf(zone, found)
	return &instance, nil
}

// List reads the instances of a zone that have all of the labels.
func (p *Provider) List(ctx context.Context, zone string, labels map[string]string) ([]cloud.Instance, error) {
	var all []cloud.Instance
	for token := ""; ; {
		var page *compute.InstanceList
		err := p.do(ctx, aboutCatalog, func(ctx context.Context) (err error) {
			call := p.service.Instances.List(p.project, zone).MaxResults(500).
				Fields("nextPageToken", googleapi.Field("items("+instanceFields+")")).Context(ctx)
			if len(labels) > 0 {
				call.Filter(labelFilter(labels))
			}
			if token != "" {
				call.PageToken(token)
			}
			page, err = call.Do()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			all = append(all, instanceOf(zone, item))
		}
		if token = page.NextPageToken; token == "" {
			return all, nil
		}
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
	var op *compute.Operation
	err := p.do(ctx, aboutOperation, func(ctx context.Context) (err error) {
		op, err = p.service.ZoneOperations.Get(p.project, operation.Zone, operation.Name).
			Fields(operationFields).Context(ctx).Do()
		return err
	})
	if err != nil {
		return operation, err
	}
	return operationOf(operation.Zone, op), nil
}

// Preemptions reads which instances of a zone were taken back since a time.
func (p *Provider) Preemptions(ctx context.Context, zone string, since time.Time) ([]cloud.Preemption, error) {
	var all []cloud.Preemption
	for token := ""; ; {
		var page *compute.OperationList
		err := p.do(ctx, aboutCatalog, func(ctx context.Context) (err error) {
			call := p.service.ZoneOperations.List(p.project, zone).MaxResults(500).
				Filter(`operationType = "compute.instances.preempted"`).
				Fields("nextPageToken", "items(targetLink,insertTime,startTime)").Context(ctx)
			if token != "" {
				call.PageToken(token)
			}
			page, err = call.Do()
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, op := range page.Items {
			// The time is compared here: Google's filters compare it as text, with the offset of its own time zone.
			at := parseTime(op.InsertTime)
			if at.Before(since) {
				continue
			}
			all = append(all, cloud.Preemption{Instance: path.Base(op.TargetLink), Time: at})
		}
		if token = page.NextPageToken; token == "" {
			slices.SortStableFunc(all, func(a, b cloud.Preemption) int { return a.Time.Compare(b.Time) })
			return all, nil
		}
	}
}

// HostKeys reads the SSH host keys that an instance has published.
func (p *Provider) HostKeys(ctx context.Context, zone, name string) ([]string, error) {
	var found *compute.GuestAttributes
	err := p.do(ctx, aboutInstance, func(ctx context.Context) (err error) {
		found, err = p.service.Instances.GetGuestAttributes(p.project, zone, name).QueryPath("hostkeys/").
			Fields("queryValue").Context(ctx).Do()
		return err
	})
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
	result := cloud.Operation{Name: op.Name, Zone: zone, Done: op.Status == "DONE"}
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
		if instance.InternalIP == "" {
			instance.InternalIP = network.NetworkIP
		}
		for _, access := range network.AccessConfigs {
			if instance.ExternalIP == "" {
				instance.ExternalIP = access.NatIP
			}
		}
	}
	return instance
}

func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at.UTC()
}
