package rest_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/dcnlab/spot-training-operator/internal/jobservice/rest"
)

// The document has the routes of the service, all of them and with their scopes.
func TestDocument(t *testing.T) {
	documented := map[string]string{}
	for path, item := range document().Paths.Map() {
		for method, operation := range item.Operations() {
			scope := ""
			for _, requirement := range *operation.Security {
				scope = strings.Join(requirement["bearer"], " ")
			}
			documented[method+" "+path] = scope
			assert.NotNil(t, operation.Responses.Status(500), path)
			if scope != "" {
				for _, status := range []int{401, 403, 429, 503} {
					assert.NotNil(t, operation.Responses.Status(status), "%s %s %d", method, path, status)
				}
			}
		}
	}
	assert.Equal(t, rest.Routes(), documented)
}

// What a client may leave out is there; what the document says of defaults is so.
func TestDefaultsAreAsDocumented(t *testing.T) {
	s := newService(t, newMemory())
	id := s.submit(t, all, `{"job_type":"inference"}`)
	job := s.send(t, "GET", "/api/v1/jobs/"+id, all, "").json(t)
	fields := document().Components.Schemas["NewJob"].Value.Properties
	assert.Equal(t, fields["priority"].Value.Default, job["priority"])
	retry := fields["retry_policy"].Value.Properties
	assert.Equal(t, map[string]any{
		"max_retries": retry["max_retries"].Value.Default, "backoff_multiplier": retry["backoff_multiplier"].Value.Default,
	}, job["retry_policy"])
	list := s.send(t, "GET", "/api/v1/jobs/", all, "").json(t)
	for _, p := range document().Paths.Value("/jobs/").Get.Parameters {
		if name := p.Value.Name; name == "limit" || name == "offset" {
			assert.Equal(t, fmt.Sprint(p.Value.Schema.Value.Default), fmt.Sprint(list[name]), name)
		}
	}
}

// The examples of the document work.
func TestExamples(t *testing.T) {
	s := newService(t, newMemory())
	tried := 0
	for path, item := range document().Paths.Map() {
		if item.Post == nil || item.Post.RequestBody == nil {
			continue
		}
		media := item.Post.RequestBody.Value.Content["application/json"]
		if media.Example == nil {
			continue
		}
		body, err := json.Marshal(media.Example)
		assert.NoError(t, err)
		assert.Less(t, s.send(t, "POST", "/api/v1"+path, all, string(body)).status, 300, path)
		tried++
	}
	assert.Equal(t, 3, tried)
}
