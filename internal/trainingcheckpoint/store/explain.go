package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
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

// Error is an error in the words of a report.
type Error struct {
	Reason  report.Reason
	Message string
}

func (e *Error) Error() string { return e.Message }

// answer is what a provider has said, whichever it is.
type answer struct {
	status int
	code   string
	text   string
}

// Explain puts an error into the words of a report: what is wrong, and what to do. The provider's own text is only in it
// where that cannot hold a secret.
func (s *Store) Explain(err error) *Error {
	e := s.explain(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Error{Reason: e.Reason, Message: s.secrets.redact(e.Message)}
}

func (s *Store) explain(err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	if local := ExplainVolume(err); local != nil {
		return local
	}
	if a, ok := answered(err); ok {
		return s.refused(a)
	}
	if text, ok := unreachable(err); ok {
		return &Error{Reason: report.ReasonStorageUnreachable, Message: fmt.Sprintf(
			"%s does not answer: %s: check the address, and whether network policies let the job's pods reach it; it is tried again", s.server(), text)}
	}
	if noCredentials(err) {
		return noIdentity(s.Location)
	}
	return &Error{Reason: report.ReasonStorageError, Message: fmt.Sprintf("%s: %s; it is tried again", s.at(), plain(err))}
}

// refused explains what a provider has answered.
func (s *Store) refused(a answer) *Error {
	said := a.code
	if said == "" {
		said = fmt.Sprintf("status %d", a.status)
	}
	switch a.code {
	case "NoSuchBucket", string(bloberror.ContainerNotFound), string(bloberror.ContainerBeingDeleted), "ResourceNotFound":
		return &Error{Reason: report.ReasonBucketNotFound, Message: fmt.Sprintf(
			"there is no %s: create it, or correct its name in spec.checkpoint.storage", s.at())}
	case "SlowDown", "ServiceUnavailable", "RequestTimeout", "ServerBusy":
		return s.busy(said)
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return &Error{Reason: report.ReasonStorageError, Message: fmt.Sprintf(
			"%s is in another region than the one that is used (%s): set spec.checkpoint.storage.s3Region to the bucket's region", s.at(), said)}
	}
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, deniedCodes[a.code]:
		return &Error{Reason: report.ReasonAccessDenied, Message: fmt.Sprintf(
			"%s refuses the credentials (%s): check the keys in the Secret, or the rights of the identity: it must list, read, write and delete objects in %s",
			s.server(), said, s.String())}
	case a.status == http.StatusNotFound && a.code == "":
		return &Error{Reason: report.ReasonBucketNotFound, Message: fmt.Sprintf(
			"there is no %s, or it may not be seen: create it, or correct its name in spec.checkpoint.storage", s.at())}
	case a.status == http.StatusBadGateway, a.status == http.StatusServiceUnavailable,
		a.status == http.StatusGatewayTimeout, a.status == http.StatusTooManyRequests:
		return s.busy(said)
	}
	text := ""
	if a.text != "" {
		text = ": " + shorten(a.text)
	}
	return &Error{Reason: report.ReasonStorageError, Message: fmt.Sprintf("%s answers %s%s; it is tried again", s.at(), said, text)}
}

func (s *Store) busy(said string) *Error {
	return &Error{Reason: report.ReasonStorageUnreachable, Message: fmt.Sprintf(
		"%s cannot serve at the moment (%s); it is tried again", s.server(), said)}
}

var deniedCodes = map[string]bool{
	"AccessDenied": true, "AllAccessDisabled": true, "InvalidAccessKeyId": true, "SignatureDoesNotMatch": true,
	"ExpiredToken": true, "InvalidToken": true, "InvalidClientTokenId": true, "AccountProblem": true, "NotSignedUp": true,
	"RequestTimeTooSkewed": true, "InvalidIdentityToken": true, "AccessDeniedException": true, "Forbidden": true,
	string(bloberror.AuthenticationFailed): true, string(bloberror.AuthorizationFailure): true,
	string(bloberror.AuthorizationPermissionMismatch): true, string(bloberror.InsufficientAccountPermissions): true,
	string(bloberror.NoAuthenticationInformation): true, string(bloberror.AccountIsDisabled): true,
}

// answered finds what a provider has said in an error.
func answered(err error) (answer, bool) {
	var a answer
	var api smithy.APIError
	if errors.As(err, &api) {
		a.code, a.text = api.ErrorCode(), api.ErrorMessage()
	}
	var s3 *awshttp.ResponseError
	if errors.As(err, &s3) {
		a.status = s3.HTTPStatusCode()
	}
	var google *googleapi.Error
	if errors.As(err, &google) {
		a.status, a.text = google.Code, google.Message
	}
	var token *oauth2.RetrieveError
	if errors.As(err, &token) && token.Response != nil {
		a.status, a.code = http.StatusForbidden, token.ErrorCode
		if token.Response.StatusCode >= http.StatusInternalServerError {
			a.status = token.Response.StatusCode
		}
	}
	var azure *azcore.ResponseError
	if errors.As(err, &azure) {
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
	var azure *azidentity.AuthenticationFailedError
	return errors.As(err, &azure) || strings.Contains(err.Error(), "get identity: get credentials") ||
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
	switch a.code {
	case "NoSuchBucket", string(bloberror.ContainerNotFound), string(bloberror.ContainerBeingDeleted):
		return false
	}
	return ok && (a.status == http.StatusNotFound || a.code == "NoSuchKey" || a.code == "NotFound")
}

func isNotImplemented(err error) bool {
	var api smithy.APIError
	return err != nil && errors.As(err, &api) && api.ErrorCode() == "NotImplemented"
}

// ExplainVolume explains an error of the file system; nil when err is none.
func ExplainVolume(err error) *Error {
	var file *fs.PathError
	name := "the volume"
	if errors.As(err, &file) {
		name = file.Path
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &Error{Reason: report.ReasonVolumeFull, Message: fmt.Sprintf(
			"there is no space left for %s: enlarge the volume, lower spec.checkpoint.retention, or delete what is not needed", name)}
	case file == nil:
		return nil
	case errors.Is(err, fs.ErrPermission):
		return &Error{Reason: report.ReasonStorageError, Message: fmt.Sprintf(
			"%s may not be used by the agent: run the training as the user of the pod, or set an fsGroup in spec.securityContext", name)}
	case errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTDOWN):
		return &Error{Reason: report.ReasonStorageUnreachable, Message: fmt.Sprintf(
			"%s: %v: check the server of the volume; it is tried again", name, file.Err)}
	case errors.Is(err, syscall.EROFS):
		return &Error{Reason: report.ReasonStorageError, Message: fmt.Sprintf(
			"%s is on a volume that cannot be written: check the claim's access modes and the state of the volume", name)}
	}
	return &Error{Reason: report.ReasonStorageError, Message: fmt.Sprintf("%s: %v; it is tried again", name, file.Err)}
}

// plain is the text of an error that no provider has sent.
func plain(err error) string {
	text := err.Error()
	if strings.Contains(text, "://") { // a URL may hold a signature
		return fmt.Sprintf("an error of kind %T", errors.Unwrap(err))
	}
	return shorten(text)
}

func shorten(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
