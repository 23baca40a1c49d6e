package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	"gocloud.dev/gcerrors"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"

	"github.com/dcnlab/spot-training-operator/internal/trainingcheckpoint/report"
)

// answer is what a provider has said, whichever it is.
type answer struct {
	status int
	code   string
	text   string
}

// Explain puts an error into the words of a report: what is wrong, and what to do. The provider's own text is only in it
// where that cannot hold a secret.
func (s *Store) Explain(err error) *report.Problem {
	e := s.explain(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &report.Problem{Reason: e.Reason, Message: s.secrets.redact(e.Message)}
}

func (s *Store) explain(err error) *report.Problem {
	if known, ok := errors.AsType[*report.Problem](err); ok {
		return known
	}
	if local := ExplainVolume(err); local != nil {
		return local
	}
	if a, ok := answered(err); ok {
		return s.refused(a)
	}
	if text, ok := unreachable(err); ok {
		return report.NewProblem(report.ReasonStorageUnreachable,
			"%s does not answer: %s: check the address, and whether network policies let the job's pods reach it; it is tried again", s.server(), text)
	}
	if noCredentials(err) {
		return noIdentity(s.Location)
	}
	return report.NewProblem(report.ReasonStorageError, "%s: %s; it is tried again", s.at(), plain(err))
}

// Codes and statuses of answers.
var (
	bucketGone   = []string{"NoSuchBucket", string(bloberror.ContainerNotFound), string(bloberror.ContainerBeingDeleted)}
	busyCodes    = []string{"SlowDown", "ServiceUnavailable", "RequestTimeout", "ServerBusy"}
	busyStatuses = []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests}
	otherRegion  = []string{"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
	denied       = []string{
		"AccessDenied", "AllAccessDisabled", "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"ExpiredToken", "InvalidToken", "InvalidClientTokenId", "AccountProblem", "NotSignedUp",
		"RequestTimeTooSkewed", "InvalidIdentityToken", "AccessDeniedException", "Forbidden",
		string(bloberror.AuthenticationFailed), string(bloberror.AuthorizationFailure),
		string(bloberror.AuthorizationPermissionMismatch), string(bloberror.InsufficientAccountPermissions),
		string(bloberror.NoAuthenticationInformation), string(bloberror.AccountIsDisabled),
	}
)

// refused explains what a provider has answered.
func (s *Store) refused(a answer) *report.Problem {
	said := cmp.Or(a.code, fmt.Sprintf("status %d", a.status))
	switch {
	case slices.Contains(bucketGone, a.code), a.code == "ResourceNotFound":
		return report.NewProblem(report.ReasonBucketNotFound, "there is no %s: create it, or correct its name in spec.checkpoint.storage", s.at())
	case slices.Contains(otherRegion, a.code):
		return report.NewProblem(report.ReasonStorageError,
			"%s is in another region than the one that is used (%s): set spec.checkpoint.storage.s3Region, or the query region of a URI, to the bucket's region", s.at(), said)
	case slices.Contains(busyCodes, a.code), slices.Contains(busyStatuses, a.status):
		return report.NewProblem(report.ReasonStorageUnreachable, "%s cannot serve at the moment (%s); it is tried again", s.server(), said)
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, slices.Contains(denied, a.code):
		return report.NewProblem(report.ReasonAccessDenied,
			"%s refuses the credentials (%s): check the keys in the Secret, or the rights of the identity: it must list, read, write and delete objects in %s",
			s.server(), said, s.String())
	case a.status == http.StatusNotFound && a.code == "":
		return report.NewProblem(report.ReasonBucketNotFound,
			"there is no %s, or it may not be seen: create it, or correct its name in spec.checkpoint.storage", s.at())
	}
	if a.text != "" {
		said += ": " + shorten(a.text)
	}
	return report.NewProblem(report.ReasonStorageError, "%s answers %s; it is tried again", s.at(), said)
}

// answered finds what a provider has said in an error.
func answered(err error) (answer, bool) {
	var a answer
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		a.code, a.text = api.ErrorCode(), api.ErrorMessage()
	}
	if s3, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		a.status = s3.HTTPStatusCode()
	}
	if google, ok := errors.AsType[*googleapi.Error](err); ok {
		a.status, a.text = google.Code, google.Message
	}
	if token, ok := errors.AsType[*oauth2.RetrieveError](err); ok && token.Response != nil {
		a.status, a.code = http.StatusForbidden, token.ErrorCode
		if token.Response.StatusCode >= http.StatusInternalServerError {
			a.status = token.Response.StatusCode
		}
	}
	if azure, ok := errors.AsType[*azcore.ResponseError](err); ok {
		a.status, a.code, a.text = azure.StatusCode, azure.ErrorCode, ""
	}
	if errors.Is(err, storage.ErrBucketNotExist) {
		a = answer{status: http.StatusNotFound, code: "NoSuchBucket"}
	}
	return a, a.status != 0 || a.code != ""
}

// unreachable says why nothing was answered, without the URL that was asked, which may hold a signature.
func unreachable(err error) (string, bool) {
	var dns *net.DNSError
	var op *net.OpError
	var address *url.Error
	switch {
	case errors.Is(err, errStalled):
		return errStalled.Error(), true
	case errors.As(err, &dns):
		return fmt.Sprintf("the name %s cannot be resolved", dns.Name), true
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long", true
	case errors.As(err, &op):
		return fmt.Sprintf("%s %s: %v", op.Op, op.Addr, op.Err), true
	case errors.As(err, &address):
		return shorten(address.Err.Error()), true
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return "the connection has ended", true
	}
	return "", false
}

func noCredentials(err error) bool {
	_, azure := errors.AsType[*azidentity.AuthenticationFailedError](err)
	return azure || strings.Contains(err.Error(), "get identity: get credentials") ||
		strings.Contains(err.Error(), "failed to acquire a token") || strings.Contains(err.Error(), "could not find default credentials")
}

// isNotFound says whether a store has said that there is no such object. That it refuses to say, that the bucket is gone or
// that no server answers is another matter, although some libraries have the same code for it: a checkpoint must not be taken
// for lost by that.
func isNotFound(err error) bool {
	if err == nil || gcerrors.Code(err) != gcerrors.NotFound {
		return false
	}
	if errors.Is(err, storage.ErrObjectNotExist) {
		return true
	}
	a, ok := answered(err)
	return ok && !slices.Contains(bucketGone, a.code) && (a.status == http.StatusNotFound || a.code == "NoSuchKey" || a.code == "NotFound")
}

func isNotImplemented(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "NotImplemented"
}

// ExplainVolume explains an error of the file system; nil when err is none.
func ExplainVolume(err error) *report.Problem {
	file, ofFile := errors.AsType[*fs.PathError](err)
	name := "the volume"
	if ofFile {
		name = file.Path
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return report.NewProblem(report.ReasonVolumeFull,
			"there is no space left for %s: enlarge the volume, lower spec.checkpoint.retention, or delete what is not needed", name)
	case !ofFile:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return report.NewProblem(report.ReasonStorageError,
			"%s may not be used by the agent: run the training as the user of the pod, or set an fsGroup in spec.securityContext", name)
	case errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTDOWN):
		return report.NewProblem(report.ReasonStorageUnreachable,
			"%s: %v: check the server of the volume; it is tried again", name, file.Err)
	case errors.Is(err, syscall.EROFS):
		return report.NewProblem(report.ReasonStorageError,
			"%s is on a volume that cannot be written: check the claim's access modes and the state of the volume", name)
	}
	return report.NewProblem(report.ReasonStorageError, "%s: %v; it is tried again", name, file.Err)
}

// plain is the text of an error that no provider has sent.
func plain(err error) string {
	text := err.Error()
	if strings.Contains(text, "://") { // a URL may hold a signature
		return fmt.Sprintf("an error of kind %T", errors.Unwrap(err))
	}
	return shorten(text)
}

func shorten(text string) string { return report.Cut(strings.Join(strings.Fields(text), " "), 300) }
