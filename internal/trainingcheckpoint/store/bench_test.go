package store_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/manifest"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/store"
	"github.com/dcnlab/spot-training-operator/test/harness/stores"
)

// benchBytes is the size of the checkpoint that is measured with; CHECKPOINT_BENCH_MIB changes it.
func benchBytes(b *testing.B, otherwise int64) int64 {
	b.Helper()
	text := os.Getenv("CHECKPOINT_BENCH_MIB")
	if text == "" {
		return otherwise << 20
	}
	mib, err := strconv.ParseInt(text, 10, 64)
	require.NoError(b, err)
	return mib << 20
}

// benchCheckpoint writes a checkpoint of one file of random content.
func benchCheckpoint(b *testing.B, folder string, size int64) *manifest.Manifest {
	b.Helper()
	require.NoError(b, os.MkdirAll(folder, 0o755))
	file, err := os.Create(filepath.Join(folder, "state.pt"))
	require.NoError(b, err)
	h := sha256.New()
	_, err = io.CopyN(io.MultiWriter(file, h), rand.NewChaCha8([32]byte{1}), size)
	require.NoError(b, err)
	require.NoError(b, file.Sync())
	require.NoError(b, file.Close())
	m, err := manifest.New("checkpoint-epoch-1", time.Now(), []manifest.File{{Path: "state.pt", Size: size, SHA256: manifest.Sum(h)}})
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(folder, manifest.FileName), m.Text, 0o644))
	return m
}

func benchStore(b *testing.B, s *stores.S3, prefix string) *store.Store {
	b.Helper()
	folder := b.TempDir()
	for key, value := range s.Secret() {
		require.NoError(b, os.WriteFile(filepath.Join(folder, key), []byte(value), 0o600))
	}
	opened, err := store.New(s.URL("bench", prefix), folder)
	require.NoError(b, err)
	return opened
}

// BenchmarkUpload sends one big file to an S3 server on the same machine, in turn by a plain multipart upload with the SDK
// and by the agent, which hashes and verifies it on the way, and lists and fences. It reports the medians and their ratio.
func BenchmarkUpload(b *testing.B) {
	ctx := context.Background()
	s := stores.NewS3(b, stores.AnyPort)
	s.MakeBucket("bench")
	folder := filepath.Join(b.TempDir(), "checkpoint-epoch-1")
	size := benchBytes(b, 1024)
	m := benchCheckpoint(b, folder, size)
	client := s3.New(s3.Options{
		Region: "us-east-1", BaseEndpoint: aws.String(s.Endpoint), UsePathStyle: true,
		Credentials:                awscredentials.NewStaticCredentialsProvider(s.AccessKeyID, s.SecretAccessKey, ""),
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired,
	})
	var plain, agent []float64
	for b.Loop() {
		plain = append(plain, timed(b, func() error {
			file, err := os.Open(filepath.Join(folder, "state.pt"))
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			uploader := transfermanager.New(client, func(o *transfermanager.Options) {
				o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
			})
			_, err = uploader.UploadObject(ctx, &transfermanager.UploadObjectInput{
				Bucket: aws.String("bench"), Key: aws.String("plain/state.pt"), Body: file,
			})
			return err
		}))
		s.RemoveBucket("bench")
		s.MakeBucket("bench")
		to := benchStore(b, s, "agent")
		agent = append(agent, timed(b, func() error {
			area, err := to.Look(ctx)
			if err != nil {
				return err
			}
			dir, err := os.OpenRoot(folder)
			if err != nil {
				return err
			}
			defer func() { _ = dir.Close() }()
			_, err = to.Upload(ctx, area, 0, dir, "checkpoint-epoch-1", m)
			return err
		}))
		s.RemoveBucket("bench")
		s.MakeBucket("bench")
	}
	rate := func(seconds []float64) float64 { return float64(size) / (1 << 20) / median(seconds) }
	b.ReportMetric(rate(plain), "plain-MiB/s")
	b.ReportMetric(rate(agent), "agent-MiB/s")
	b.ReportMetric(100*median(plain)/median(agent), "%-of-plain")
}

func timed(b *testing.B, f func() error) float64 {
	b.Helper()
	began := time.Now()
	require.NoError(b, f())
	return time.Since(began).Seconds()
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

// BenchmarkVerify reads and hashes a checkpoint on a volume.
func BenchmarkVerify(b *testing.B) {
	folder := filepath.Join(b.TempDir(), "checkpoint-epoch-1")
	size := benchBytes(b, 1024)
	m := benchCheckpoint(b, folder, size)
	dir, err := os.OpenRoot(folder)
	require.NoError(b, err)
	defer func() { _ = dir.Close() }()
	b.SetBytes(size)
	for b.Loop() {
		require.NoError(b, manifest.Verify(context.Background(), dir, m))
	}
}

// BenchmarkMemory sends a checkpoint of 4 GiB and brings it back, each by a process of its own, and reports what that had
// resident at most.
func BenchmarkMemory(b *testing.B) {
	program := filepath.Join(b.TempDir(), "manager")
	build := exec.Command("go", "build", "-trimpath", "-tags", "disable_grpc_modules,grpcnotrace", "-ldflags", "-s -w", "-o", program, "../../..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(b, err, "%s", text)
	s := stores.NewS3(b, stores.AnyPort)
	s.MakeBucket("bench")
	work := b.TempDir()
	benchCheckpoint(b, filepath.Join(work, "first", "checkpoint-epoch-1"), benchBytes(b, 4096))
	for b.Loop() {
		syncing := startAgent(b, program, s, "sync", filepath.Join(work, "first"))
		require.Eventually(b, agentHasNewest, 10*time.Minute, 100*time.Millisecond)
		peak := syncing.peak()
		require.NoError(b, syncing.command.Process.Signal(syscall.SIGTERM))
		require.NoError(b, syncing.command.Wait())
		b.ReportMetric(peak, "MiB-sync")
		restoring := startAgent(b, program, s, "restore", filepath.Join(work, "second"))
		most := 0.0
		for ended := wait(restoring.command); ; {
			select {
			case err := <-ended:
				require.NoError(b, err)
			case <-time.After(20 * time.Millisecond):
				most = max(most, restoring.peak())
				continue
			}
			break
		}
		require.FileExists(b, filepath.Join(work, "second", "checkpoint-epoch-1", "state.pt"))
		b.ReportMetric(most, "MiB-restore")
	}
}

const agentPort = "19464"

type agentProcess struct {
	b       *testing.B
	command *exec.Cmd
}

func startAgent(b *testing.B, program string, s *stores.S3, role, directory string) agentProcess {
	b.Helper()
	credentials := b.TempDir()
	for key, value := range s.Secret() {
		require.NoError(b, os.WriteFile(filepath.Join(credentials, key), []byte(value), 0o600))
	}
	command := exec.Command(program, "checkpoint-agent", role)
	command.Env = append(os.Environ(), "CHECKPOINT_DIR="+directory, "REPLICA_INDEX=0", "CHECKPOINT_STORE="+s.URL("bench", "memory"),
		"CHECKPOINT_CREDENTIALS="+credentials, "CHECKPOINT_RETENTION=3", "AGENT_PORT="+agentPort,
		"TERMINATION_MESSAGE_PATH="+filepath.Join(b.TempDir(), "termination-log"))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(b, command.Start())
	return agentProcess{b, command}
}

func wait(command *exec.Cmd) chan error {
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	return ended
}

// peak is the most that the process had resident so far, in MiB; 0 when it has ended.
func (p agentProcess) peak() float64 {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib / 1024
		}
	}
	return 0
}

func agentHasNewest() bool {
	answer, err := http.Get("http://127.0.0.1:" + agentPort + report.StatusPath)
	if err != nil {
		return false
	}
	defer func() { _ = answer.Body.Close() }()
	var r report.Report
	return json.NewDecoder(answer.Body).Decode(&r) == nil && r.Newest != nil
}
