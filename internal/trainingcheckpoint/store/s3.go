package store

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	awscredentials "github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"
)

// openS3 opens a bucket of Amazon S3 or of a server that speaks its protocol.
func openS3(ctx context.Context, l Location, c credentials, client *http.Client) (*blob.Bucket, error) {
	cfg := aws.Config{HTTPClient: client, Region: os.Getenv("AWS_REGION")}
	if c != nil {
		cfg.Credentials = aws.NewCredentialsCache(
			awscredentials.NewStaticCredentialsProvider(c[keyAccessKeyID], c[keySecretAccessKey], c[keySessionToken]))
	} else {
		found, err := config.LoadDefaultConfig(ctx, config.WithHTTPClient(client))
		if err != nil {
			return nil, fmt.Errorf("read the settings for Amazon S3: %w", err)
		}
		cfg = found
	}
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) { o.MaxAttempts, o.MaxBackoff = 3, 3*time.Second })
	}
	if l.Endpoint != "" {
		cfg.BaseEndpoint = aws.String(l.Endpoint)
		// The checksums that the library adds of its own are not understood by every server. What is sent is signed or
		// encrypted in any case, and every content is compared with its SHA-256 when it is read.
		cfg.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		cfg.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
	var err error
	if cfg.Region, err = s3Region(ctx, l, cfg.Region, client); err != nil {
		return nil, err // it is asked again at the next try
	}
	s3Client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.UsePathStyle = l.Endpoint != ""
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	return s3blob.OpenBucket(ctx, s3Client, l.Bucket, &s3blob.Options{RequestChecksumCalculation: cfg.RequestChecksumCalculation})
}

// s3Region is the one that the location names, else that of the environment, else the one that Amazon says the bucket
// to be in, which it tells everyone.
func s3Region(ctx context.Context, l Location, environment string, client *http.Client) (string, error) {
	const usual = "us-east-1"
	switch {
	case l.Region != "":
		return l.Region, nil
	case environment != "":
		return environment, nil
	case l.Endpoint != "":
		return usual, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, "https://s3.amazonaws.com/"+l.Bucket, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("ask for the region of bucket %s: %w", l.Bucket, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", fmt.Errorf("ask for the region of bucket %s: %w", l.Bucket, err)
	}
	_ = answer.Body.Close()
	if region := answer.Header.Get("X-Amz-Bucket-Region"); region != "" {
		return region, nil
	}
	return usual, nil
}
