// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/metrics"
	"k8s.io/apiserver/pkg/storage/value"
)

// addEncryption reads the encryption configuration, with kube-apiserver's own
// loader, and returns how values are encrypted; nil without one. As there, the
// health of key management services is part of readyz and healthz, and not of
// livez: a restart helps nobody.
func (o *Options) addEncryption(config *Config) (_ value.ResourceTransformers, err error) {
	file, reload := o.EncryptionProviderConfig, o.EncryptionProviderConfigAutomaticReload
	if file == "" {
		return nil, nil
	}
	// Values are read and written until the last request is answered.
	served := wait.ContextForChannel(config.Generic.DrainedNotify())
	ctx, closeTransformers := context.WithCancel(served)
	defer func() {
		if err != nil {
			closeTransformers()
		}
	}()
	identity := config.Generic.APIServerID
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, reload, identity)
	if err != nil {
		return nil, fmt.Errorf("encryption configuration %s: %w", file, err)
	}
	metrics.RecordEncryptionConfigLastConfigInfo(identity, loaded.EncryptionFileContentHash)
	if !reload {
		addReadiness(config, loaded.HealthChecks...)
		return encryptionconfig.StaticTransformers(loaded.Transformers), nil
	}

	if n := len(loaded.HealthChecks); n != 1 {
		return nil, fmt.Errorf("encryption configuration %s: %d health checks, want the one that is replaced with each reload", file, n)
	}
	// From here on what is replaced is closed by what replaces it.
	transformers := encryptionconfig.NewDynamicTransformers(loaded.Transformers, loaded.HealthChecks[0], closeTransformers, loaded.KMSCloseGracePeriod)
	addReadiness(config, transformers)
	config.PostStart = append(config.PostStart, PostStartHook{
		Name: "kommit-encryption-provider-config-automatic-reload",
		Run: func(genericapiserver.PostStartHookContext) error {
			go controller.NewDynamicEncryptionConfiguration(
				"encryption-provider-config-automatic-reload-controller", file, transformers, loaded.EncryptionFileContentHash, identity,
			).Run(served)
			return nil
		},
	})
	return transformers, nil
}

func addReadiness(config *Config, checks ...healthz.HealthChecker) {
	config.Generic.HealthzChecks = append(config.Generic.HealthzChecks, checks...)
	config.Generic.ReadyzChecks = append(config.Generic.ReadyzChecks, checks...)
}
