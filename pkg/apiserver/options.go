// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/component-base/version"

	"github.com/kommit-dev/kommit/generated/openapi"
)

// Options are the command line of kommit-apiserver.
type Options struct {
	// Recommended are those that every API server has. Etcd is nil: objects are in
	// StorageFile.
	Recommended *genericoptions.RecommendedOptions
	// StorageFile holds the objects and the journal.
	StorageFile string
	// EncryptionProviderConfig is the file that says how objects are encrypted in
	// StorageFile, as kube-apiserver reads it; empty: not at all.
	EncryptionProviderConfig string
	// EncryptionProviderConfigAutomaticReload follows changes of that file.
	EncryptionProviderConfigAutomaticReload bool
	// AllowInsecureHTTP accepts http:// URLs of repositories.
	AllowInsecureHTTP bool
	// AttributionGrace is how long a change waits for its author (C8).
	AttributionGrace time.Duration
	// CatchUpTimeout bounds the proof that a save holds all that came before it
	// (DESIGN 5.5). 0: AttributionGrace.
	CatchUpTimeout time.Duration
	// MaxWindowBytes bounds the content that one window collects (W5). 0: no bound.
	MaxWindowBytes int64
	// ShutdownDelay is how long a server that is told to stop goes on as before, but
	// for /readyz and for saves, which are refused.
	ShutdownDelay time.Duration
	// FlushTimeout bounds how long it then pushes what is in its windows. 0: nothing is
	// waited for.
	FlushTimeout time.Duration
}

// NewOptions returns the options with their defaults.
func NewOptions() *Options {
	scheme := newScheme()
	recommended := genericoptions.NewRecommendedOptions("", storageCodec(newCodecs(scheme)))
	recommended.Etcd = nil
	recommended.EgressSelector = nil
	recommended.Traces = nil
	recommended.SecureServing.BindPort = 8443
	recommended.SecureServing.Required = true // nothing else is served
	// A certificate that nobody provided is made in memory: the file system may be
	// read-only, and nothing could trust it after a restart either way.
	recommended.SecureServing.ServerCert.CertDirectory = ""
	return &Options{
		Recommended:      recommended,
		StorageFile:      "/var/lib/kommit/kommit.db",
		AttributionGrace: 45 * time.Second,
		MaxWindowBytes:   64 << 20,
		ShutdownDelay:    3 * time.Second,
		FlushTimeout:     20 * time.Second,
	}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.Recommended.AddFlags(fs)
	fs.StringVar(&o.StorageFile, "storage-file", o.StorageFile,
		"File that holds the objects of kommit.dev and the journal. Created when absent; its directory must exist, on a disk that survives the process.")
	fs.StringVar(&o.EncryptionProviderConfig, "encryption-provider-config", o.EncryptionProviderConfig,
		"File with the EncryptionConfiguration (apiserver.config.k8s.io) for the objects of kommit.dev, as for kube-apiserver. Without it they are stored as they are.")
	fs.BoolVar(&o.EncryptionProviderConfigAutomaticReload, "encryption-provider-config-automatic-reload", o.EncryptionProviderConfigAutomaticReload,
		"Read the file of --encryption-provider-config again when it changes. KMS plugins then share one health check.")
	fs.BoolVar(&o.AllowInsecureHTTP, "allow-insecure-http", o.AllowInsecureHTTP,
		"Accept http:// URLs of Git repositories. Credentials and commits then travel unprotected.")
	fs.DurationVar(&o.AttributionGrace, "attribution-grace", o.AttributionGrace,
		"How long a change waits for the audit event that names its author before it counts as unresolved. At least the audit webhook's batch-max-wait of the kube-apiserver, whose default is 30s.")
	fs.DurationVar(&o.CatchUpTimeout, "catch-up-timeout", o.CatchUpTimeout,
		"How long a save waits for the proof that it holds all changes made before it. 0 means as long as --attribution-grace.")
	fs.Int64Var(&o.MaxWindowBytes, "max-window-bytes", o.MaxWindowBytes,
		"How many bytes of files one window collects. An edit that would exceed it closes the window into a commit and opens the next. 0 means no bound.")
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"How long a server that is told to stop still serves, for those who route requests to it to notice. /readyz fails from the first moment on, and new CommitRequests are refused with 503 and Retry-After.")
	fs.DurationVar(&o.FlushTimeout, "flush-timeout", o.FlushTimeout,
		"How long a server that is told to stop, after --shutdown-delay-duration, pushes what is in its windows. What is not pushed by then waits in the journal for the next start. The pod's terminationGracePeriodSeconds must be at least 15s more than both.")
}

// Validate returns all that is wrong with the options, in one error.
func (o *Options) Validate() error {
	errs := o.Recommended.Validate()
	if o.StorageFile == "" {
		errs = append(errs, errors.New("--storage-file must name a file, such as /var/lib/kommit/kommit.db"))
	} else if filepath.Clean(o.StorageFile) == string(filepath.Separator) {
		errs = append(errs, fmt.Errorf("--storage-file must name a file, not the directory %s", o.StorageFile))
	}
	if o.EncryptionProviderConfigAutomaticReload && o.EncryptionProviderConfig == "" {
		errs = append(errs, errors.New("--encryption-provider-config-automatic-reload needs --encryption-provider-config"))
	}
	if o.AttributionGrace <= 0 {
		errs = append(errs, fmt.Errorf("--attribution-grace must be more than 0s, not %s", o.AttributionGrace))
	}
	if o.CatchUpTimeout < 0 {
		errs = append(errs, fmt.Errorf("--catch-up-timeout must be 0s or more, not %s", o.CatchUpTimeout))
	}
	if o.MaxWindowBytes < 0 {
		errs = append(errs, fmt.Errorf("--max-window-bytes must be 0 or more, not %d", o.MaxWindowBytes))
	}
	if o.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay-duration must be 0s or more, not %s", o.ShutdownDelay))
	}
	if o.FlushTimeout < 0 {
		errs = append(errs, fmt.Errorf("--flush-timeout must be 0s or more, not %s", o.FlushTimeout))
	}
	return utilerrors.NewAggregate(errs)
}

// catchUpTimeout is CatchUpTimeout with its default applied.
func (o *Options) catchUpTimeout() time.Duration {
	if o.CatchUpTimeout == 0 {
		return o.AttributionGrace
	}
	return o.CatchUpTimeout
}

// Config returns what the flags say of a server; the caller adds its parts. With
// a CoreAPI, which is the default, it reaches out to the cluster.
func (o *Options) Config() (*Config, error) {
	if err := o.Recommended.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("serving certificate: %w; give one by --tls-cert-file and --tls-private-key-file", err)
	}
	scheme := newScheme()
	config := &Config{
		Generic:           genericapiserver.NewRecommendedConfig(newCodecs(scheme)),
		AllowInsecureHTTP: o.AllowInsecureHTTP,
		scheme:            scheme,
	}
	namer := newDefinitionNamer()
	v2 := genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	v2.Info.Title, v2.Info.Version = "kommit", version.Get().GitVersion
	v3 := genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	v3.Info.Title, v3.Info.Version = "kommit", version.Get().GitVersion
	config.Generic.OpenAPIConfig = v2
	config.Generic.OpenAPIV3Config = v3
	config.Generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.Generic.ShutdownDelayDuration = o.ShutdownDelay
	if err := o.Recommended.ApplyTo(config.Generic); err != nil {
		return nil, err
	}
	config.Generic.Authentication.Authenticator = refuseAnonymous(config.Generic.Authentication.Authenticator)
	chain := config.Generic.BuildHandlerChainFunc
	config.Generic.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		handler = chain(handler, c)
		if c.SecureServing == nil || c.SecureServing.ClientCA == nil {
			return handler
		}
		return untilTrusted(c.SecureServing.ClientCA, time.Now(), handler)
	}
	return config, nil
}
