//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	aiplatformv1alpha1 "github.com/dcnlab/spot-training-operator/api/aiplatform/v1alpha1"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// makeModel writes a TorchScript model of the digits into the bucket, and a file of inputs, and reports the first of them.
const makeModel = `
import io, json, os
import boto3, torch
from inference_worker import model
classifier = model.bundled("digits-cnn")
images, labels = model.digits()
scaled = torch.from_numpy((images[:100] - classifier.mean) / classifier.deviation).unsqueeze(1)
script = io.BytesIO()
torch.jit.save(torch.jit.trace(classifier.network, scaled[:2]), script)
lines = "".join(json.dumps({"id": int(label), "input": image.tolist()}) + "\n" for image, label in zip(scaled, labels))
s3 = boto3.client("s3", endpoint_url=os.environ["S3_ENDPOINT_URL"])
s3.put_object(Bucket="models", Key="digits.pt", Body=script.getvalue())
s3.put_object(Bucket="models", Key="inputs.jsonl", Body=lines.encode())
json.dump({"image": scaled[0].tolist(), "label": int(labels[0])}, open("/dev/termination-log", "w"))
`

// usingStore gives a job the credentials of an S3 server.
func usingStore(server *stores.S3) func(*aiplatformv1alpha1.AIJobSpec) {
	return func(s *aiplatformv1alpha1.AIJobSpec) {
		s.Env = []corev1.EnvVar{{Name: "S3_ENDPOINT_URL", Value: server.Endpoint}, {Name: "AWS_REGION", Value: "us-east-1"}}
		for key := range server.Secret() {
			s.Env = append(s.Env, corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: secretName}, Key: key,
			}}})
		}
	}
}

// A user's model is served by HTTP from an object store under the job's name, and used over a file that lies there.
func TestAModelOfAnObjectStoreIsServedAndUsedOverAFile(t *testing.T) {
	t.Parallel()
	ns, server := namespace(t), s3Server(t)
	server.MakeBucket(bucket)
	credentials(t, ns, server)
	made := pythonJob(t, ns, "make", makeModel).Spec(usingStore(server)).ToCreate()
	require.NoError(t, cluster.Create(t.Context(), made))
	awaitAIJob(t, made, aiplatformv1alpha1.AIJobSucceeded)

	command := func(name, verb, config string) *aiplatformv1alpha1.AIJob {
		job := pythonJob(t, ns, name, "").Spec(usingStore(server)).ToCreate()
		job.Spec.JobType, job.Spec.Command = aiplatformv1alpha1.JobInference, []string{"python3", "-m", "inference_worker", verb}
		job.Spec.Config = &runtime.RawExtension{Raw: []byte(config)}
		return job
	}
	serves := command("digits", "serve", `{"model": "s3://models/digits.pt"}`)
	serves.Spec.Service = &aiplatformv1alpha1.AIJobService{Port: 8080, ReadinessPath: "/v2/health/ready"}
	require.NoError(t, cluster.Create(t.Context(), serves))
	over := command("over", "batch",
		`{"model": "s3://models/digits.pt", "input": "s3://models/inputs.jsonl", "output": "s3://models/outputs.jsonl", "postprocess": "argmax"}`)
	require.NoError(t, cluster.Create(t.Context(), over))

	awaitAIJob(t, serves, aiplatformv1alpha1.AIJobRunning)
	assert.Equal(t, "http://digits."+ns+".svc:8080", serves.Status.URL)
	answer := inferBy(t, serves, made.Status.Outputs["image"])
	assert.Equal(t, made.Status.Outputs["label"], answer)

	awaitAIJob(t, over, aiplatformv1alpha1.AIJobSucceeded)
	assert.Equal(t, "100", over.Status.Outputs["count"])
	lines := strings.Split(strings.TrimSpace(string(server.Get(bucket, "outputs.jsonl"))), "\n")
	require.Len(t, lines, 100)
	right := 0
	for _, line := range lines {
		var said struct{ ID, Output int }
		require.NoError(t, json.Unmarshal([]byte(line), &said), line)
		if said.ID == said.Output {
			right++
		}
	}
	assert.Greater(t, right, 97)

	patch := client.MergeFrom(serves.DeepCopy())
	serves.Spec.Cancel = ptr.To(true)
	require.NoError(t, cluster.Patch(t.Context(), serves, patch))
	awaitAIJob(t, serves, aiplatformv1alpha1.AIJobCancelled)
	assert.Empty(t, serves.Status.URL)
}

// inferBy asks the Service of a job, once a pod of it is ready, what an image shows. The test runs on the node.
func inferBy(t *testing.T, job *aiplatformv1alpha1.AIJob, image string) string {
	t.Helper()
	var service corev1.Service
	require.NoError(t, cluster.Get(t.Context(), client.ObjectKeyFromObject(job), &service))
	address := net.JoinHostPort(service.Spec.ClusterIP, "8080")
	body := `{"inputs": [{"name": "images", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": ` + image + `}]}`
	var status int
	var text []byte
	eventually(t, "its Service leads to a pod that is ready", func(ctx context.Context) (bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v2/models/digits/infer", strings.NewReader(body))
		if err != nil {
			return false, err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil { // refused as long as no pod is ready
			return false, nil //nolint:nilerr // asked again
		}
		defer func() { _ = response.Body.Close() }()
		status = response.StatusCode
		text, err = io.ReadAll(response.Body)
		return true, err
	})
	require.Equal(t, http.StatusOK, status, "%s", text)
	var said struct {
		Outputs []struct{ Data []float64 }
	}
	require.NoError(t, json.Unmarshal(text, &said))
	require.Len(t, said.Outputs, 1)
	best := 0
	for digit, value := range said.Outputs[0].Data {
		if value > said.Outputs[0].Data[best] {
			best = digit
		}
	}
	return string(rune('0' + best))
}
