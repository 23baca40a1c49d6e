package store

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/googleapi"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

func TestParseLocation(t *testing.T) {
	l, err := ParseLocation("s3://bucket/team/ns/job/uid?region=eu-central-1&endpoint=http%3A%2F%2Fstore%3A9000%2F")
	require.NoError(t, err)
	assert.Equal(t, Location{Scheme: "s3", Bucket: "bucket", Prefix: "team/ns/job/uid", Region: "eu-central-1", Endpoint: "http://store:9000"}, l)
	assert.Equal(t, "s3://bucket/team/ns/job/uid", l.String())
	for _, good := range []string{"gs://bucket", "azblob://container/a?account=x"} {
		_, err := ParseLocation(good)
		assert.NoError(t, err, good)
	}
	for _, bad := range []string{
		"ftp://bucket/a", "s3:///a", "azblob://container/a", "gs://bucket/a?region=x", "s3://user:password@bucket/a",
		"s3://bucket/a?endpoint=store", "s3://bucket/a?endpoint=file%3A%2F%2F%2Fetc", "s3://bucket/%zz",
	} {
		_, err := ParseLocation(bad)
		require.Error(t, err, bad)
		assert.NotContains(t, err.Error(), "password")
	}
}

func TestExplainRepeatsNoSecret(t *testing.T) {
	const sas = "sv=2026&sig=abcdefghijklmnop"
	s := &Store{Location: Location{Scheme: schemeAzure, Bucket: "container", Account: "account"}, secrets: credentials{keyAzureSAS: sas}}
	for _, err := range []error{
		errors.New("GET https://account.blob.core.windows.net/container?" + sas + ": something is wrong"),
		&url.Error{Op: "Get", URL: "https://account.blob.core.windows.net/container?" + sas, Err: errors.New("EOF")},
		fmt.Errorf("the token %s is not right", sas),
	} {
		e := s.Explain(err)
		assert.NotContains(t, e.Message, sas)
		assert.NotContains(t, e.Message, "abcdefghijklmnop")
		assert.Contains(t, []report.Reason{report.ReasonStorageError, report.ReasonStorageUnreachable}, e.Reason)
	}
}

// Google's library has one code for an object that is not there and for one that may not be seen.
func TestWhatIsRefusedIsNotTakenForLost(t *testing.T) {
	refused := &googleapi.Error{Code: 403}
	assert.False(t, isNotFound(refused))
	s := &Store{Location: Location{Scheme: schemeGCS, Bucket: "bucket"}}
	assert.Equal(t, report.ReasonAccessDenied, s.Explain(refused).Reason)
}
