package redact

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"plain words", "worker 0 ended with exit code 1: CUDA out of memory", "worker 0 ended with exit code 1: CUDA out of memory"},
		{"user and password of a URL", "connect to https://bob:hunter2@mlflow:5000/x failed", "connect to https://***@mlflow:5000/x failed"},
		{"a token as the user of a URL", "git clone https://abc123@example.com/a.git", "git clone https://***@example.com/a.git"},
		{"an address without a user", "GET http://mlflow:5000/a@b", "GET http://mlflow:5000/a@b"},
		{"a signed URL", "GET https://b.example.com/k?X-Amz-Signature=abc&x=1: 403", "GET https://b.example.com/k?X-Amz-Signature=***&x=1: 403"},
		{"a shared access signature", "https://a.example.com/c?sv=1&sig=a%2Fb%3D", "https://a.example.com/c?sv=1&sig=***"},
		{"a variable", "env WANDB_API_KEY=0123abcd set", "env WANDB_API_KEY=*** set"},
		{"a JSON field", `{"password": "hunter2", "user": "bob"}`, `{"password": "***", "user": "bob"}`},
		{"YAML", "db-password: hunter2\nuser: bob", "db-password: ***\nuser: bob"},
		{"a flag with its value behind it", "run --db-password hunter2 --epochs 3", "run --db-password *** --epochs 3"},
		{"a header", "Authorization: Bearer abc.def.ghi", "Authorization: Bearer ***"},
		{"a bearer token alone", "refused bearer abcdefgh12", "refused bearer ***"},
		{"a JSON Web Token", "got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJib2IifQ.c2ln", "got ***"},
		{"an access key", "InvalidAccessKeyId AKIAIOSFODNN7EXAMPLE", "InvalidAccessKeyId ***"},
		{"a token with a prefix", "hf_abcdefghijklmnopqrstuvwxyz is wrong", "*** is wrong"},
		{"a private key", "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\nend", "***\nend"},
		{"a private key that is cut off", "x -----BEGIN PRIVATE KEY-----\nMII", "x ***"},
		{"a number of tokens", "max_tokens=512, tokenizer=bert", "max_tokens=512, tokenizer=bert"},
		{"the name of a Secret", `couldn't find key api-key in Secret team/wandb`, `couldn't find key api-key in Secret team/wandb`},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, Text(test.text))
			assert.Equal(t, test.want, Text(Text(test.text)), "done twice")
		})
	}
}

func TestKnownValues(t *testing.T) {
	assert.Equal(t, "login as *** with *** failed", Text("login as correct-horse with correct-horse-battery failed", "correct-horse", "correct-horse-battery"))
	assert.Equal(t, "a short value stays", Text("a short value stays", "short"), "it may be part of any word")
}

func TestNamesSecret(t *testing.T) {
	for name, want := range map[string]bool{
		"WANDB_API_KEY": true, "HF_TOKEN": true, "AWS_SECRET_ACCESS_KEY": true, "db-password": true, "apikey": true, "SECRET": true,
		"MAX_TOKENS": false, "TOKENIZER": false, "NCCL_DEBUG": false, "PASSWORD_FILE": false, "": false,
	} {
		assert.Equal(t, want, NamesSecret(name), name)
	}
}

func TestLogLines(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: LogAttribute}))
	log.Error("token=abcdef", "err", errors.New("https://bob:hunter2@x"), "note", "password: hunter2", "count", 3)
	assert.Contains(t, out.String(), `"msg":"token=***","err":"https://***@x","note":"password: ***","count":3`)
}
