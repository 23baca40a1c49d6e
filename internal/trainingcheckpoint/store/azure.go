package store

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"gocloud.dev/blob"
	"gocloud.dev/blob/azureblob"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// openAzure opens a container of Azure Blob Storage.
func openAzure(l Location, c credentials, client *http.Client) (*blob.Bucket, error) {
	address, account, err := azureContainer(l)
	if err != nil {
		return nil, err
	}
	common := azcore.ClientOptions{
		Transport: client,
		Retry:     policy.RetryOptions{MaxRetries: 2, RetryDelay: 500 * time.Millisecond, MaxRetryDelay: 3 * time.Second},
	}
	opened, err := azureClient(l, c, address, account, common)
	if err != nil {
		return nil, err
	}
	return azureblob.OpenBucket(context.Background(), opened, nil)
}

// azureContainer is the URL of the container, and the name of its account. A server that is not Azure's own has the account
// in the path of its URL.
func azureContainer(l Location) (address, account string, err error) {
	if l.Endpoint == "" {
		return fmt.Sprintf("https://%s.blob.core.windows.net/%s", l.Account, l.Bucket), l.Account, nil
	}
	u, err := url.Parse(l.Endpoint)
	if err != nil {
		return "", "", fmt.Errorf("the endpoint of %s is no URL", l.at())
	}
	account = l.Account
	if account == "" {
		account = path.Base(u.Path)
	}
	return l.Endpoint + "/" + l.Bucket, account, nil
}

func azureClient(l Location, c credentials, address, account string, common azcore.ClientOptions) (*container.Client, error) {
	options := &container.ClientOptions{ClientOptions: common}
	switch {
	case c[keyAzureSAS] != "":
		return container.NewClientWithNoCredential(address+"?"+strings.TrimPrefix(c[keyAzureSAS], "?"), options)
	case c != nil:
		key, err := azblob.NewSharedKeyCredential(account, c[keyAzureKey])
		if err != nil { // its text may repeat the key
			return nil, report.NewProblem(report.ReasonCredentialsMissing,
				"%s of the Secret for %s is no key of a storage account: put one of its two access keys there", keyAzureKey, l.at())
		}
		return container.NewClientWithSharedKeyCredential(address, key, options)
	}
	identity, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: common})
	if err != nil {
		return nil, noIdentity(l)
	}
	return container.NewClient(address, identity, options)
}
