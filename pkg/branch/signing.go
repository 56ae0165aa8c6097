// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/pkg/git"
)

// signingKey is the key that the commits to one GitProvider are signed with. Safe
// for concurrent use.
type signingKey struct {
	name    types.NamespacedName
	secrets secretGetter

	mu sync.Mutex // protects the fields below
	// signer, or err, is what data was parsed to: decrypting a key takes time on
	// purpose, and must not take it in each save.
	data   map[string][]byte
	signer git.Signer
	err    error
}

// read returns the key as the Secret has it now (G9). The error is a *SecretError
// when that has to be put right.
func (k *signingKey) read(ctx context.Context) (git.Signer, error) {
	data, err := readSecret(ctx, k.secrets, k.name)
	if err != nil {
		return git.Signer{}, err
	}
	signer, err := k.parse(data)
	if err == nil {
		err = signer.ValidAt(time.Now())
	}
	if err != nil {
		return git.Signer{}, &SecretError{Secret: k.name, Err: err}
	}
	return signer, nil
}

func (k *signingKey) parse(data map[string][]byte) (git.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.data == nil || !maps.EqualFunc(k.data, data, bytes.Equal) {
		k.signer, k.err = git.ParseSigningSecret(data)
		k.data = maps.Clone(data)
		if k.data == nil {
			k.data = map[string][]byte{}
		}
	}
	return k.signer, k.err
}
