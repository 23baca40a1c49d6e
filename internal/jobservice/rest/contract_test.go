package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const unknownID = "01920000-0000-7000-8000-000000000000"

// contractCase is a request and what must come of it. In path and body ID, OTHER, CANCELLED, SUCCEEDED, DEAD, RUNNING, POD, TASK and FENCE
// stand for jobs that the test has made before.
type contractCase struct {
	name, method, path, user, body string
	header                         []string
	status                         int
	code                           string
	// fields that details must name, all of them and in this order.
	fields []string
	// has are parts of the answer's body.
	has []string
}

func submission(fields string) string { return `{"job_type":"inference",` + fields + `}` }

// refused is a submission with wrong fields.
func refused(name, body string, fields ...string) contractCase {
	return contractCase{name: name, method: "POST", path: "/jobs/", user: all, body: body, status: 400, code: "VALIDATION_ERROR", fields: fields}
}

// accepted is a submission that is right.
func accepted(name, body string, has ...string) contractCase {
	return contractCase{name: name, method: "POST", path: "/jobs/", user: all, body: body, status: 201, has: append(has, `"status":"queued"`, `"queue_position":`)}
}

// badQuery is a GET with wrong parameters.
func badQuery(path string, fields ...string) contractCase {
	return contractCase{name: path, method: "GET", path: path, user: all, status: 400, code: "VALIDATION_ERROR", fields: fields}
}

func contract() []contractCase {
	long := strings.Repeat("x", 65)
	deep := strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)
	return []contractCase{
		// Submissions that are right.
		accepted("only the type", `{"job_type":"inference"}`, `"priority":50`, `"queue":"inference"`, `"namespace":"team-a"`),
		accepted("everything", `{"job_type":"training","priority":100,"image":"registry.example.com/t:v1","config":{"a":[1,2,{"b":null}]},
			"resources":{"cpu":"500m","memory":"8Gi","gpu":2},"gang":{"enabled":true,"min_members":4,"topology":"topology.kubernetes.io/zone"},
			"timeout_seconds":3600,"retry_policy":{"max_retries":0,"backoff_multiplier":1.5},"namespace":"default","queue":"big"}`,
			`"namespace":"default"`, `"queue":"big"`, `"priority":100`),
		accepted("nulls are left out", submission(`"image":null,"config":null,"resources":null,"gang":null,"timeout_seconds":null,"retry_policy":null,"queue":null,"namespace":null,"priority":null`), `"priority":50`),
		accepted("least values", submission(`"priority":0,"timeout_seconds":1,"retry_policy":{"max_retries":0,"backoff_multiplier":1},"resources":{"cpu":0,"memory":"0","gpu":0}`), `"priority":0`),
		accepted("greatest values", submission(`"priority":100,"timeout_seconds":31622400,"retry_policy":{"max_retries":100,"backoff_multiplier":10},"image":"i","gang":{"enabled":true,"min_members":1000}`)),
		accepted("whole numbers with a point", submission(`"priority":8e1,"timeout_seconds":60.0`), `"priority":80`),
		accepted("amounts as numbers", submission(`"resources":{"cpu":1.5,"memory":1073741824}`)),
		accepted("a gang that is off", submission(`"gang":{"enabled":false,"min_members":1}`)),
		accepted("unicode", submission(`"config":{"größe":"日本語 😀 \ud83d\ude00 \u00e9 <&>"}`)),
		accepted("blanks around everything", " \n\t{ \"job_type\" : \"simulation\" , \"config\" : { } } \r\n", `"simulation"`),
		accepted("escaped names of fields", `{"job\u005ftype":"evaluation"}`, `"evaluation"`),
		accepted("a queue of 63 characters", submission(`"queue":"`+strings.Repeat("q", 63)+`"`)),
		{name: "without the slash", method: "POST", path: "/jobs", user: all, body: `{"job_type":"inference"}`, status: 201},
		{name: "charset", method: "POST", path: "/jobs/", user: all, body: `{"job_type":"inference"}`, header: []string{"Content-Type", "application/json; charset=utf-8"}, status: 201},

		// Submissions that are wrong.
		refused("no body at all", " "),
		refused("no JSON", "job_type: inference"),
		refused("half an object", `{"job_type":`),
		refused("two objects", `{"job_type":"inference"}{}`),
		refused("a list", `[{"job_type":"inference"}]`),
		refused("null", "null"),
		refused("a text", `"inference"`),
		refused("not UTF-8", "{\"job_type\":\"inference\",\"queue\":\"\xff\xfe\"}"),
		refused("empty object", `{}`, "job_type"),
		refused("type is null", `{"job_type":null}`, "job_type"),
		refused("unknown type", `{"job_type":"mining"}`, "job_type"),
		refused("type in capitals", `{"job_type":"INFERENCE"}`, "job_type"),
		refused("type is a number", `{"job_type":1}`, "job_type"),
		refused("unknown field", submission(`"priorty":1`), "priorty"),
		refused("field of Kubernetes", submission(`"jobType":"inference"`), "jobType"),
		refused("field in capitals", `{"JOB_TYPE":"inference"}`, "JOB_TYPE", "job_type"),
		refused("twice the same field", submission(`"priority":1,"priority":2`), "priority"),
		refused("priority too high", submission(`"priority":101`), "priority"),
		refused("priority too low", submission(`"priority":-1`), "priority"),
		refused("priority a text", submission(`"priority":"80"`), "priority"),
		refused("priority a fraction", submission(`"priority":50.5`), "priority"),
		refused("priority huge", submission(`"priority":1e400`), "priority"),
		refused("priority a boolean", submission(`"priority":true`), "priority"),
		refused("image empty", submission(`"image":""`), "image"),
		refused("image with a blank", submission(`"image":"a b"`), "image"),
		refused("image with a line break", submission(`"image":"a\nb"`), "image"),
		refused("image with a zero", submission(`"image":"a\u0000b"`), "image"),
		refused("image too long", submission(`"image":"`+strings.Repeat("a", 1025)+`"`), "image"),
		refused("image a number", submission(`"image":5`), "image"),
		refused("config a list", submission(`"config":[]`), "config"),
		refused("config a text", submission(`"config":"{}"`), "config"),
		refused("config too large", submission(`"config":{"a":"`+strings.Repeat("a", 64<<10)+`"}`), "config"),
		refused("config too deep", submission(`"config":`+deep), "config"),
		refused("config with a zero", submission(`"config":{"a":"\u0000"}`), "config"),
		refused("config with a zero in a name", submission(`"config":{"a\u0000":1}`), "config"),
		refused("config with half a pair", submission(`"config":{"a":"\ud800"}`), "config"),
		refused("config with the other half", submission(`"config":{"a":"\udc00x"}`), "config"),
		refused("config with too large a number", submission(`"config":{"a":1e999}`), "config"),
		refused("resources a text", submission(`"resources":"4"`), "resources"),
		refused("unknown resource", submission(`"resources":{"disk":"1Gi"}`), "resources.disk"),
		refused("cpu no amount", submission(`"resources":{"cpu":"four"}`), "resources.cpu"),
		refused("cpu negative", submission(`"resources":{"cpu":"-1"}`), "resources.cpu"),
		refused("memory with a wrong unit", submission(`"resources":{"memory":"8GB"}`), "resources.memory"),
		refused("memory a list", submission(`"resources":{"memory":["8Gi"]}`), "resources.memory"),
		refused("memory too long", submission(`"resources":{"memory":"`+strings.Repeat("9", 65)+`"}`), "resources.memory"),
		refused("cpu beyond all numbers", submission(`"resources":{"cpu":1e999}`), "resources.cpu"),
		refused("memory of no node", submission(`"resources":{"memory":"2E"}`), "resources.memory"),
		refused("gpu a text", submission(`"resources":{"gpu":"1"}`), "resources.gpu"),
		refused("gpu half", submission(`"resources":{"gpu":0.5}`), "resources.gpu"),
		refused("gpu negative", submission(`"resources":{"gpu":-1}`), "resources.gpu"),
		refused("gang a boolean", submission(`"gang":true`), "gang"),
		refused("gang without members", submission(`"image":"i","gang":{"enabled":true}`), "gang.min_members"),
		refused("gang of one", submission(`"image":"i","gang":{"enabled":true,"min_members":1}`), "gang.min_members"),
		refused("gang of too many", submission(`"image":"i","gang":{"enabled":true,"min_members":1001}`), "gang.min_members"),
		refused("gang without an image", submission(`"gang":{"enabled":true,"min_members":2}`), "image"),
		refused("members without a gang", submission(`"gang":{"min_members":4}`), "gang.enabled"),
		refused("topology without a gang", submission(`"gang":{"topology":"zone"}`), "gang.topology"),
		refused("topology no label", submission(`"image":"i","gang":{"enabled":true,"min_members":2,"topology":"a b"}`), "gang.topology"),
		refused("enabled a text", submission(`"gang":{"enabled":"true"}`), "gang.enabled"),
		refused("timeout zero", submission(`"timeout_seconds":0`), "timeout_seconds"),
		refused("timeout negative", submission(`"timeout_seconds":-5`), "timeout_seconds"),
		refused("timeout too long", submission(`"timeout_seconds":9223372036854775807`), "timeout_seconds"),
		refused("timeout beyond 64 bits", submission(`"timeout_seconds":92233720368547758070`), "timeout_seconds"),
		refused("too many retries", submission(`"retry_policy":{"max_retries":101}`), "retry_policy.max_retries"),
		refused("multiplier too small", submission(`"retry_policy":{"backoff_multiplier":0.9}`), "retry_policy.backoff_multiplier"),
		refused("multiplier too large", submission(`"retry_policy":{"backoff_multiplier":10.1}`), "retry_policy.backoff_multiplier"),
		refused("multiplier a text", submission(`"retry_policy":{"backoff_multiplier":"2"}`), "retry_policy.backoff_multiplier"),
		refused("unknown field of retries", submission(`"retry_policy":{"retries":1}`), "retry_policy.retries"),
		refused("namespace no name", submission(`"namespace":"Team_A"`), "namespace"),
		refused("namespace empty", submission(`"namespace":""`), "namespace"),
		refused("queue no name", submission(`"queue":"-q"`), "queue"),
		refused("queue too long", submission(`"queue":"`+long+`"`), "queue"),
		refused("everything wrong at once", `{"job_type":"x","priority":500,"image":" ","config":1,"resources":{"cpu":"x","gpu":-1},"gang":{"enabled":1},"timeout_seconds":0,"retry_policy":{"max_retries":-1},"queue":"Q","nonsense":1}`,
			"job_type", "priority", "image", "config", "resources.cpu", "resources.gpu", "gang.enabled", "timeout_seconds", "retry_policy.max_retries", "queue", "nonsense"),
		{name: "another namespace", method: "POST", path: "/jobs/", user: all, body: submission(`"namespace":"team-b"`), status: 403, code: "FORBIDDEN", has: []string{"team-b"}},
		{name: "no content type", method: "POST", path: "/jobs/", user: all, body: `{}`, header: []string{"Content-Type", ""}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "a form", method: "POST", path: "/jobs/", user: all, body: `job_type=inference`, header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "another charset", method: "POST", path: "/jobs/", user: all, body: `{}`, header: []string{"Content-Type", "application/json; charset=utf-16"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "compressed", method: "POST", path: "/jobs/", user: all, body: `{}`, header: []string{"Content-Encoding", "gzip"}, status: 415, code: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "body too large", method: "POST", path: "/jobs/", user: all, body: `{"a":"` + strings.Repeat("a", 1<<20) + `"}`, status: 413, code: "PAYLOAD_TOO_LARGE"},

		// Who may.
		{name: "no token", method: "GET", path: "/jobs/", status: 401, code: "UNAUTHORIZED"},
		{name: "no bearer", method: "GET", path: "/jobs/", header: []string{"Authorization", "Basic YTpi"}, status: 401, code: "UNAUTHORIZED"},
		{name: "no token after bearer", method: "GET", path: "/jobs/", header: []string{"Authorization", "Bearer "}, status: 401, code: "UNAUTHORIZED"},
		{name: "a wrong token", method: "GET", path: "/jobs/", header: []string{"Authorization", "Bearer a.b.c"}, status: 401, code: "UNAUTHORIZED"},
		{name: "reading without the scope", method: "GET", path: "/jobs/", user: writer, status: 403, code: "FORBIDDEN", has: []string{"jobs:read"}},
		{name: "writing without the scope", method: "POST", path: "/jobs/", user: reader, body: `{"job_type":"inference"}`, status: 403, code: "FORBIDDEN", has: []string{"jobs:write"}},
		{name: "working without the scope", method: "POST", path: "/tasks/lease", user: reader, body: `{}`, status: 403, code: "FORBIDDEN", has: []string{"tasks:work"}},
		{name: "cancelling without the scope", method: "DELETE", path: "/jobs/ID", user: reader, status: 403, code: "FORBIDDEN"},

		// Batches.
		{name: "a batch", method: "POST", path: "/jobs/batch", user: all, body: `{"jobs":[{"job_type":"inference"},{"job_type":"training","priority":7}]}`, status: 201, has: []string{`"priority":7`}},
		{name: "a batch of 1000", method: "POST", path: "/jobs/batch/", user: all, body: `{"jobs":[` + strings.Repeat(`{"job_type":"evaluation"},`, 999) + `{"job_type":"evaluation"}]}`, status: 201},
		{name: "a batch of 1001", method: "POST", path: "/jobs/batch", user: all, body: `{"jobs":[` + strings.Repeat(`{"job_type":"evaluation"},`, 1000) + `{"job_type":"evaluation"}]}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"jobs"}},
		{name: "an empty batch", method: "POST", path: "/jobs/batch", user: all, body: `{"jobs":[]}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"jobs"}},
		{name: "no batch", method: "POST", path: "/jobs/batch", user: all, body: `{}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"jobs"}},
		{name: "a batch of no objects", method: "POST", path: "/jobs/batch", user: all, body: `{"jobs":[1]}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"jobs[0]"}},
		{name: "wrong jobs in a batch", method: "POST", path: "/jobs/batch", user: all, body: `{"jobs":[{"job_type":"inference"},{"job_type":"x"},{"job_type":"inference","priority":101,"gang":{"min_members":4}}]}`,
			status: 400, code: "VALIDATION_ERROR", fields: []string{"jobs[1].job_type", "jobs[2].priority", "jobs[2].gang.enabled"}},
		{name: "a batch for another namespace", method: "POST", path: "/jobs/batch", user: all, body: `{"jobs":[{"job_type":"inference"},{"job_type":"inference","namespace":"team-b"}]}`,
			status: 403, code: "FORBIDDEN", fields: []string{"jobs[1].namespace"}},
		{name: "a batch is not read", method: "GET", path: "/jobs/batch", user: all, status: 405, code: "METHOD_NOT_ALLOWED"},

		// Lists.
		{name: "list", method: "GET", path: "/jobs/?queue=waiting", user: all, status: 200, has: []string{`"limit":50`, `"offset":0`, "ID"}},
		{name: "list without the slash", method: "GET", path: "/jobs", user: all, status: 200},
		{name: "list with everything", method: "GET", path: "/jobs/?status=cancelled&job_type=inference&priority_min=0&limit=100&offset=0&namespace=team-a&queue=inference", user: all, status: 200, has: []string{"CANCELLED"}},
		{name: "list the end", method: "GET", path: "/jobs/?offset=1000000&limit=1", user: all, status: 200, has: []string{`"items":[]`}},
		{name: "list another's namespace", method: "GET", path: "/jobs/?namespace=team-b", user: all, status: 403, code: "FORBIDDEN"},
		badQuery("/jobs/?status=done", "status"), badQuery("/jobs/?job_type=x", "job_type"), badQuery("/jobs/?priority_min=101", "priority_min"),
		badQuery("/jobs/?priority_min=x", "priority_min"), badQuery("/jobs/?limit=0", "limit"), badQuery("/jobs/?limit=101", "limit"),
		badQuery("/jobs/?limit=", "limit"), badQuery("/jobs/?limit=1e1", "limit"), badQuery("/jobs/?limit=99999999999999999999", "limit"),
		badQuery("/jobs/?offset=-1", "offset"), badQuery("/jobs/?offset=1000001", "offset"), badQuery("/jobs/?state=queued", "state"),
		badQuery("/jobs/?limit=1&limit=2", "limit"), badQuery("/jobs/?namespace=A", "namespace"), badQuery("/jobs/?queue=", "queue"),
		badQuery("/jobs/?limit=x&offset=y&status=z", "status", "limit", "offset"), badQuery("/jobs/?%zz", ""),

		// One job.
		{name: "get", method: "GET", path: "/jobs/ID", user: all, status: 200, has: []string{"ID", `"logs_url":"/api/v1/jobs/ID/logs"`, `"config":{"a":1}`, `"retry_count":0`}},
		{name: "get with a slash", method: "GET", path: "/jobs/ID/", user: all, status: 200},
		{name: "get in capitals", method: "GET", path: "/jobs/UPPER", user: all, status: 200, has: []string{"ID"}},
		{name: "head", method: "HEAD", path: "/jobs/ID", user: all, status: 200},
		{name: "get another's", method: "GET", path: "/jobs/OTHER", user: all, status: 404, code: "NOT_FOUND"},
		{name: "get as who may all", method: "GET", path: "/jobs/OTHER", user: admin, status: 200},
		{name: "get an unknown one", method: "GET", path: "/jobs/" + unknownID, user: all, status: 404, code: "NOT_FOUND"},
		{name: "get no ID", method: "GET", path: "/jobs/17", user: all, status: 404, code: "NOT_FOUND"},
		{name: "get an ID with braces", method: "GET", path: "/jobs/%7B" + unknownID + "%7D", user: all, status: 404, code: "NOT_FOUND"},
		{name: "get nonsense", method: "GET", path: "/jobs/%00%ff%2f..", user: all, status: 404, code: "NOT_FOUND"},
		{name: "get with a query", method: "GET", path: "/jobs/ID?full=true", user: all, status: 400, code: "VALIDATION_ERROR", fields: []string{"full"}},
		{name: "cancel", method: "DELETE", path: "/jobs/TOCANCEL", user: all, status: 200, has: []string{`"status":"cancelled"`, `"cancelled_at":"`}},
		{name: "cancel a cancelled one", method: "DELETE", path: "/jobs/CANCELLED", user: all, status: 409, code: "CONFLICT"},
		{name: "cancel one that succeeded", method: "DELETE", path: "/jobs/SUCCEEDED", user: all, status: 409, code: "CONFLICT"},
		{name: "cancel another's", method: "DELETE", path: "/jobs/OTHER", user: all, status: 404, code: "NOT_FOUND"},
		{name: "cancel an unknown one", method: "DELETE", path: "/jobs/" + unknownID, user: all, status: 404, code: "NOT_FOUND"},
		{name: "requeue", method: "POST", path: "/jobs/DEAD/requeue", user: all, status: 200, has: []string{`"status":"queued"`, `"retry_count":0`}},
		{name: "requeue one that is not dead", method: "POST", path: "/jobs/SUCCEEDED/requeue", user: all, status: 409, code: "CONFLICT"},
		{name: "requeue another's", method: "POST", path: "/jobs/OTHER/requeue", user: all, status: 404, code: "NOT_FOUND"},
		{name: "requeue by GET", method: "GET", path: "/jobs/DEAD/requeue", user: all, status: 405, code: "METHOD_NOT_ALLOWED"},
		{name: "put", method: "PUT", path: "/jobs/ID", user: all, body: `{}`, status: 405, code: "METHOD_NOT_ALLOWED"},
		{name: "delete all", method: "DELETE", path: "/jobs/", user: all, status: 405, code: "METHOD_NOT_ALLOWED"},
		{name: "options", method: "OPTIONS", path: "/jobs/", user: all, status: 405, code: "METHOD_NOT_ALLOWED"},

		// Logs.
		{name: "log", method: "GET", path: "/jobs/SUCCEEDED/logs", user: all, status: 200, has: []string{"submitted by alice", "started by worker", `{"answer":42}`}},
		{name: "tail", method: "GET", path: "/jobs/SUCCEEDED/logs?tail=1&timestamps=false", user: all, status: 200, has: []string{"ended as succeeded"}},
		{name: "no lines", method: "GET", path: "/jobs/SUCCEEDED/logs?tail=0", user: all, status: 200},
		{name: "follow one that ended", method: "GET", path: "/jobs/SUCCEEDED/logs?follow=true", user: all, status: 200, has: []string{"data: ", "event: end", `{"status":"succeeded"}`}},
		{name: "log of another's", method: "GET", path: "/jobs/OTHER/logs", user: all, status: 404, code: "NOT_FOUND"},
		{name: "log of an unknown one", method: "GET", path: "/jobs/" + unknownID + "/logs", user: all, status: 404, code: "NOT_FOUND"},
		badQuery("/jobs/ID/logs?follow=yes", "follow"), badQuery("/jobs/ID/logs?tail=-1", "tail"), badQuery("/jobs/ID/logs?tail=10001", "tail"),
		badQuery("/jobs/ID/logs?timestamps=1", "timestamps"), badQuery("/jobs/ID/logs?since=1h", "since"),

		// Queues, clusters, figures.
		{name: "queues", method: "GET", path: "/queues/", user: all, status: 200, has: []string{`"name":"inference"`, `"totals":{`}},
		{name: "queue", method: "GET", path: "/queues/inference", user: all, status: 200, has: []string{`"pool_depth":`, `"jobs":[`, `"stats":{`}},
		{name: "unknown queue", method: "GET", path: "/queues/none", user: all, status: 404, code: "NOT_FOUND"},
		{name: "queue of nonsense", method: "GET", path: "/queues/%F0%9F%98%80", user: all, status: 404, code: "NOT_FOUND"},
		badQuery("/queues/?all=1", "all"),
		{name: "clusters", method: "GET", path: "/clusters/", user: all, status: 200, has: []string{`"clusters":[]`}},
		{name: "unknown cluster", method: "GET", path: "/clusters/none", user: all, status: 404, code: "NOT_FOUND"},
		{name: "workflow without a cluster", method: "GET", path: "/workflows/team-a/w", user: all, status: 404, code: "NOT_FOUND"},
		{name: "figures", method: "GET", path: "/metrics/", user: all, status: 200, has: []string{`"success_rate":`, `"dispatch_p99_ms":`, `"throughput":`}},
		{name: "figures without the slash", method: "GET", path: "/metrics", user: all, status: 200},
		badQuery("/metrics/?x=1", "x"),

		// Tasks.
		{name: "lease", method: "POST", path: "/tasks/lease", user: worker, body: `{"queue":"simulation","worker_id":"w","max_tasks":2,"wait_seconds":0,"job_types":["simulation"]}`, status: 200, has: []string{`"attempt":1`, `"lease_token":`, `"visibility_timeout_seconds":`}},
		{name: "lease of an empty queue", method: "POST", path: "/tasks/lease/", user: all, body: `{"queue":"empty","worker_id":"w","wait_seconds":0}`, status: 200, has: []string{`{"tasks":[]}`}},
		{name: "lease of a queue that the token is not good for", method: "POST", path: "/tasks/lease", user: worker, body: `{"queue":"secret","worker_id":"w"}`, status: 403, code: "FORBIDDEN", has: []string{"secret"}},
		{name: "lease of nothing", method: "POST", path: "/tasks/lease", user: worker, body: `{}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"queue", "worker_id"}},
		{name: "lease of everything wrong", method: "POST", path: "/tasks/lease", user: worker, body: `{"queue":"Q","worker_id":"a b","job_types":["x",1],"max_tasks":101,"wait_seconds":31,"more":1}`,
			status: 400, code: "VALIDATION_ERROR", fields: []string{"queue", "worker_id", "job_types[0]", "job_types[1]", "max_tasks", "wait_seconds", "more"}},
		{name: "heartbeat", method: "POST", path: "/tasks/TASK/heartbeat", user: worker, body: `{"lease_token":FENCE}`, status: 200, has: []string{`"cancel":false`}},
		{name: "heartbeat of a cancelled one", method: "POST", path: "/tasks/STOPPED/heartbeat", user: worker, body: `{"lease_token":1}`, status: 200, has: []string{`"cancel":true`}},
		{name: "heartbeat with another lease", method: "POST", path: "/tasks/TASK/heartbeat", user: worker, body: `{"lease_token":99}`, status: 409, code: "CONFLICT"},
		{name: "heartbeat without a lease", method: "POST", path: "/tasks/TASK/heartbeat", user: worker, body: `{}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"lease_token"}},
		{name: "heartbeat of nothing", method: "POST", path: "/tasks/" + unknownID + "/heartbeat", user: worker, body: `{"lease_token":1}`, status: 404, code: "NOT_FOUND"},
		{name: "heartbeat of no ID", method: "POST", path: "/tasks/x/heartbeat", user: worker, body: `{"lease_token":1}`, status: 404, code: "NOT_FOUND"},
		{name: "heartbeat of a job with pods", method: "POST", path: "/tasks/POD/heartbeat", user: worker, body: `{"lease_token":1}`, status: 404, code: "NOT_FOUND"},
		{name: "heartbeat of another queue", method: "POST", path: "/tasks/SECRET/heartbeat", user: worker, body: `{"lease_token":1}`, status: 404, code: "NOT_FOUND"},
		{name: "complete with another lease", method: "POST", path: "/tasks/TASK/complete", user: worker, body: `{"lease_token":99,"result":{}}`, status: 409, code: "CONFLICT"},
		{name: "complete with a list", method: "POST", path: "/tasks/TASK/complete", user: worker, body: `{"lease_token":FENCE,"result":[]}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"result"}},
		{name: "complete with too much", method: "POST", path: "/tasks/TASK/complete", user: worker, body: `{"lease_token":FENCE,"result":{"a":"` + strings.Repeat("a", 256<<10) + `"}}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"result"}},
		{name: "complete", method: "POST", path: "/tasks/TASK/complete", user: worker, body: `{"lease_token":FENCE,"result":{"ok":true}}`, status: 200, has: []string{`"status":"succeeded"`}},
		{name: "complete again", method: "POST", path: "/tasks/TASK/complete", user: worker, body: `{"lease_token":FENCE,"result":{"ok":true}}`, status: 200, has: []string{`"status":"succeeded"`}},
		{name: "fail what is complete", method: "POST", path: "/tasks/TASK/fail", user: worker, body: `{"lease_token":FENCE,"message":"no"}`, status: 409, code: "CONFLICT"},
		{name: "fail", method: "POST", path: "/tasks/RUNNING/fail", user: worker, body: `{"lease_token":RUNFENCE,"message":"it\u0000broke` + strings.Repeat(" very much", 2000) + `"}`, status: 200, has: []string{`"status":"retrying"`}},
		{name: "fail with wrong types", method: "POST", path: "/tasks/RUNNING/fail", user: worker, body: `{"lease_token":"1","message":5,"retryable":"no"}`, status: 400, code: "VALIDATION_ERROR", fields: []string{"lease_token", "message", "retryable"}},

		// The rest.
		{name: "live", method: "GET", path: "/health/live", status: 200, has: []string{`"ok"`}},
		{name: "ready", method: "GET", path: "/health/ready", status: 200, has: []string{`"ready"`, `"database":"ok"`, `"redis":"ok"`, `"kubernetes":"off"`}},
		{name: "live with a wrong token", method: "GET", path: "/health/live/", header: []string{"Authorization", "Bearer x"}, status: 200},
		{name: "document", method: "GET", path: "/openapi.json", status: 200, has: []string{`"openapi":"3.0.3"`}},
		{name: "page", method: "GET", path: "/docs", status: 200, has: []string{"<h1>Job service", "POST /jobs/batch"}},
		{name: "nothing", method: "GET", path: "/nothing", user: all, status: 404, code: "NOT_FOUND"},
		{name: "nothing below a job", method: "GET", path: "/jobs/ID/nothing", user: all, status: 404, code: "NOT_FOUND"},
		{name: "two slashes", method: "GET", path: "/jobs//", user: all, status: 404, code: "NOT_FOUND"},
		{name: "dots", method: "GET", path: "/jobs/../jobs/", user: all, status: 404, code: "NOT_FOUND"},
		{name: "the request's own ID", method: "GET", path: "/health/live", header: []string{"X-Request-ID", "my-request.1"}, status: 200},
	}
}

// prepare makes the jobs that cases speak of.
func prepare(t *testing.T, s *service) *strings.Replacer {
	t.Helper()
	names := map[string]string{
		"ID":       s.submit(t, all, `{"job_type":"inference","queue":"waiting","config":{"a":1}}`),
		"TOCANCEL": s.submit(t, all, `{"job_type":"inference","queue":"waiting"}`),
		"OTHER":    s.submit(t, other, `{"job_type":"inference","queue":"waiting"}`),
		"POD":      s.submit(t, all, `{"job_type":"inference","queue":"waiting","image":"registry.example.com/m:v1"}`),
		"SECRET":   s.submit(t, all, `{"job_type":"inference","queue":"secret"}`),
	}
	names["UPPER"] = strings.ToUpper(names["ID"])
	ok := func(a answer) { require.Equal(t, http.StatusOK, a.status, "%s", a.body) }
	names["CANCELLED"] = s.submit(t, all, `{"job_type":"inference"}`)
	ok(s.send(t, "DELETE", "/api/v1/jobs/"+names["CANCELLED"], all, ""))

	names["SUCCEEDED"] = s.submit(t, all, `{"job_type":"inference"}`)
	id, fence := s.lease(t, "inference")
	require.Equal(t, names["SUCCEEDED"], id)
	ok(s.send(t, "POST", "/api/v1/tasks/"+id+"/complete", all, fmt.Sprintf(`{"lease_token":%d,"result":{"answer":42}}`, fence)))

	names["DEAD"] = s.submit(t, all, `{"job_type":"training","retry_policy":{"max_retries":0}}`)
	id, fence = s.lease(t, "training")
	ok(s.send(t, "POST", "/api/v1/tasks/"+id+"/fail", all, fmt.Sprintf(`{"lease_token":%d,"message":"boom"}`, fence)))

	names["STOPPED"] = s.submit(t, all, `{"job_type":"inference"}`)
	id, fence = s.lease(t, "inference")
	ok(s.send(t, "DELETE", "/api/v1/jobs/"+id, all, ""))

	names["RUNNING"] = s.submit(t, all, `{"job_type":"evaluation","queue":"retries"}`)
	id, runFence := s.lease(t, "retries")
	require.Equal(t, names["RUNNING"], id)

	names["TASK"] = s.submit(t, all, `{"job_type":"inference"}`)
	id, taskFence := s.lease(t, "inference")
	require.Equal(t, names["TASK"], id)
	s.submit(t, all, `{"job_type":"simulation"}`)

	return strings.NewReplacer("RUNFENCE", fmt.Sprint(runFence), "FENCE", fmt.Sprint(taskFence), `heartbeat-token`, fmt.Sprint(fence),
		"TOCANCEL", names["TOCANCEL"], "CANCELLED", names["CANCELLED"], "SUCCEEDED", names["SUCCEEDED"], "STOPPED", names["STOPPED"],
		"RUNNING", names["RUNNING"], "OTHER", names["OTHER"], "SECRET", names["SECRET"], "UPPER", names["UPPER"],
		"DEAD", names["DEAD"], "TASK", names["TASK"], "POD", names["POD"], "/jobs/ID", "/jobs/"+names["ID"])
}

func TestContract(t *testing.T) {
	for name, open := range stores() {
		t.Run(name, func(t *testing.T) {
			s := newService(t, open(t))
			replace := prepare(t, s)
			cases := contract()
			require.Greater(t, len(cases), 80)
			for _, test := range cases {
				t.Run(test.name, func(t *testing.T) {
					path := "/api/v1" + replace.Replace(test.path)
					a := s.send(t, test.method, path, test.user, replace.Replace(test.body), test.header...)
					require.Equal(t, test.status, a.status, "%s", a.body)
					if test.code != "" {
						code, fields, message := a.problem(t)
						assert.Equal(t, test.code, code)
						assert.Equal(t, test.fields, fields, message)
					}
					for _, part := range test.has {
						if part == "ID" {
							part = "/jobs/ID"
						}
						assert.Contains(t, string(a.body), strings.TrimPrefix(replace.Replace(part), "/jobs/"))
					}
				})
			}
		})
	}
}
