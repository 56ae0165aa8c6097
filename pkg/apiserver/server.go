// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver puts the server together: Options are its command line,
// Config its parts, New the one place where the parts meet.
//
// Order of life: the storage is open before New; PostStart runs when requests are
// answered. A server that is told to stop says so at /readyz and takes no new saves
// from that moment on, and else goes on. PreShutdown runs while it still answers, so
// that it can use the API, and is waited for: after --shutdown-delay-duration windows
// are flushed, within --flush-timeout. Then watches end and the port is closed, what
// PostStart began ends, the journal is written to its end, and the storage is closed.
package apiserver

import (
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/branch"
	"github.com/kommit-dev/kommit/pkg/registry/commitrequest"
	"github.com/kommit-dev/kommit/pkg/registry/commitwindow"
	"github.com/kommit-dev/kommit/pkg/registry/gitprovider"
	"github.com/kommit-dev/kommit/pkg/registry/gittarget"
	"github.com/kommit-dev/kommit/pkg/registry/watchrule"
)

// AuditPath is where the kube-apiserver's audit webhook posts to: a non-resource
// URL that needs `post` (C11).
const AuditPath = "/audit"

// watchTermination bounds how long a server that stops takes to end its watches,
// at 200 a second or more. Without one it waits for its clients to end them: a
// minute in which nobody answers.
const watchTermination = 5 * time.Second

// Config is what a server is made of. Options.Config makes one; Storage and
// Windows are for the caller to add, the rest is optional.
type Config struct {
	// Generic is the server without any API. ClientConfig reaches the cluster,
	// LoopbackClientConfig this server.
	Generic *genericapiserver.RecommendedConfig
	// Storage is where objects are.
	Storage generic.RESTOptionsGetter
	// Windows is what the API shows of saving.
	Windows Windows
	// Audit answers AuditPath, behind authentication and authorization.
	Audit http.Handler
	// Backup answers BackupPath, behind authentication and authorization.
	Backup http.Handler
	// Metrics are shown at /metrics beside those of the API machinery.
	Metrics prometheus.Gatherer
	// AllowInsecureHTTP accepts http:// URLs in GitProviders.
	AllowInsecureHTTP bool
	// Ready are asked by /readyz.
	Ready []healthz.HealthChecker
	// PostStart are run, each in a goroutine of its own, when the server answers.
	// Their context ends with the server. An error ends the process, and /readyz
	// waits for each to return: long work goes into a goroutine that they start.
	PostStart []PostStartHook
	// PreShutdown are run when the server is told to stop and still answers. It
	// stops when all have returned.
	PreShutdown []PreShutdownHook

	scheme *runtime.Scheme
}

// Windows are the open windows, what came of them, and what could: all that the
// API shows and is not stored. branch.Pool has it.
type Windows interface {
	commitrequest.WindowTable
	commitwindow.Table
	commitwindow.Differ
	gittarget.History
	commitrequest.History
}

var _ Windows = (*branch.Pool)(nil)

// PostStartHook is work to start once the server answers.
type PostStartHook struct {
	Name string
	Run  genericapiserver.PostStartHookFunc
}

// PreShutdownHook is work to finish while the server still answers.
type PreShutdownHook struct {
	Name string
	Run  genericapiserver.PreShutdownHookFunc
}

// New returns the server, ready for PrepareRun. It changes config.Generic, so
// that one Config makes one server.
func New(config *Config) (*genericapiserver.GenericAPIServer, error) {
	config.Generic.RESTOptionsGetter = config.Storage
	config.Generic.ShutdownWatchTerminationGracePeriod = watchTermination
	// Who comes while requests in flight are waited for is told to come again, and
	// is not refused a connection; and connections are waited for 2s, not a minute.
	config.Generic.ShutdownSendRetryAfter = true
	longRunning := config.Generic.LongRunningFunc
	config.Generic.LongRunningFunc = func(r *http.Request, info *genericapirequest.RequestInfo) bool {
		return info.Path == BackupPath || longRunning(r, info)
	}
	server, err := config.Generic.Complete().New("kommit-apiserver", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	group, err := newAPIGroup(config, server)
	if err != nil {
		return nil, err
	}
	if err := server.InstallAPIGroup(group); err != nil {
		return nil, fmt.Errorf("API group %s: %w", v1alpha1.GroupName, err)
	}
	if config.Audit != nil {
		server.Handler.NonGoRestfulMux.Handle(AuditPath, config.Audit)
	}
	if config.Backup != nil {
		server.Handler.NonGoRestfulMux.Handle(BackupPath, config.Backup)
	}
	if config.Metrics != nil {
		serveMetrics(server, config.Metrics)
	}
	if err := server.AddReadyzChecks(config.Ready...); err != nil {
		return nil, err
	}
	for _, hook := range config.PostStart {
		if err := server.AddPostStartHook(hook.Name, hook.Run); err != nil {
			return nil, err
		}
	}
	for _, hook := range config.PreShutdown {
		if err := server.AddPreShutdownHook(hook.Name, hook.Run); err != nil {
			return nil, err
		}
	}
	return server, nil
}

func newAPIGroup(config *Config, server *genericapiserver.GenericAPIServer) (*genericapiserver.APIGroupInfo, error) {
	providers, providerStatus, err := gitprovider.NewREST(config.scheme, config.Storage, server.Authorizer, config.AllowInsecureHTTP)
	if err != nil {
		return nil, err
	}
	targets, targetStatus, err := gittarget.NewREST(config.scheme, config.Storage)
	if err != nil {
		return nil, err
	}
	rules, ruleStatus, err := watchrule.NewREST(config.scheme, config.Storage, server.Authorizer)
	if err != nil {
		return nil, err
	}
	requests, requestStatus, err := commitrequest.NewREST(config.scheme, config.Storage, commitrequest.Config{
		Authorizer: server.Authorizer,
		Windows:    config.Windows,
		Targets:    targets,
		Stopping:   config.Generic.ShutdownInitiatedNotify(),
	})
	if err != nil {
		return nil, err
	}
	targetCommits := gittarget.NewCommitsREST(gittarget.CommitsConfig{
		Targets:   targets,
		History:   config.Windows,
		Requests:  requests,
		Admission: config.Generic.AdmissionControl,
		Scheme:    config.scheme,
	})
	group := genericapiserver.NewDefaultAPIGroupInfo(v1alpha1.GroupName, config.scheme, runtime.NewParameterCodec(config.scheme), newCodecs(config.scheme))
	group.NegotiatedSerializer = newWithoutProtobuf(group.NegotiatedSerializer)
	group.VersionedResourcesStorageMap[v1alpha1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"gitproviders":           providers,
		"gitproviders/status":    providerStatus,
		"gittargets":             targets,
		"gittargets/status":      targetStatus,
		"gittargets/commits":     targetCommits,
		"watchrules":             rules,
		"watchrules/status":      ruleStatus,
		"commitrequests":         requests,
		"commitrequests/status":  requestStatus,
		"commitrequests/commits": commitrequest.NewCommitsREST(requests, config.Windows),
		"commitwindows":          commitwindow.NewREST(config.Windows),
		"commitwindows/diff":     commitwindow.NewDiffREST(config.Windows),
	}
	return &group, nil
}

// StorageCodec reads and writes the objects in Config.Storage.
func (c *Config) StorageCodec() runtime.Codec {
	return storageCodec(newCodecs(c.scheme))
}

func newCodecs(scheme *runtime.Scheme) serializer.CodecFactory {
	return serializer.NewCodecFactory(scheme)
}
