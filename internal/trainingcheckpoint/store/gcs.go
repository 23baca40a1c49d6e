package store

import (
	"context"
	"net/http"
	"time"

	"cloud.google.com/go/storage"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// tokenTimeout is how long the answer with an access token may take.
const tokenTimeout = 30 * time.Second

// openGCS opens a bucket of Google Cloud Storage.
func openGCS(ctx context.Context, l Location, c credentials, client *http.Client) (*blob.Bucket, error) {
	options := []option.ClientOption{storage.WithJSONReads()}
	if l.Endpoint != "" {
		options = append(options, option.WithEndpoint(l.Endpoint+"/storage/v1/"))
	}
	authorized, err := authorizeGCS(ctx, l, c, client)
	if err != nil {
		return nil, err
	}
	opened := &gcsblob.Options{ClientOptions: options}
	if key, err := google.JWTConfigFromJSON([]byte(c[keyGoogle])); err == nil { // URLs can be signed
		opened.GoogleAccessID, opened.PrivateKey = key.Email, key.PrivateKey
	}
	return gcsblob.OpenBucket(ctx, authorized, l.Bucket, opened)
}

func authorizeGCS(ctx context.Context, l Location, c credentials, client *http.Client) (*gcp.HTTPClient, error) {
	// Tokens are asked for over the same connections; no guard ends such a request, so it has a limit of its own.
	ctx = context.WithValue(context.WithoutCancel(ctx), oauth2.HTTPClient,
		&http.Client{Transport: client.Transport, Timeout: tokenTimeout})
	const scope = storage.ScopeReadWrite
	switch {
	case c != nil:
		found, err := google.CredentialsFromJSONWithType(ctx, []byte(c[keyGoogle]), google.ServiceAccount, scope)
		if err != nil { // its text may repeat parts of the key
			return nil, report.NewProblem(report.ReasonCredentialsMissing,
				"%s of the Secret for %s is no key of a service account: put the JSON file there that Google Cloud gave for it", keyGoogle, l.at())
		}
		return gcp.NewHTTPClient(client.Transport, found.TokenSource)
	case l.Endpoint != "":
		return gcp.NewAnonymousHTTPClient(client.Transport), nil
	}
	found, err := google.FindDefaultCredentials(ctx, scope)
	if err != nil {
		return nil, noIdentity(l)
	}
	return gcp.NewHTTPClient(client.Transport, found.TokenSource)
}

// noIdentity is the error of an environment without workload identity.
func noIdentity(l Location) *report.Problem {
	return report.NewProblem(report.ReasonCredentialsMissing,
		"there are no credentials for %s: name a Secret in secretRef, or give the job's ServiceAccount a workload identity", l.at())
}
