// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	kmsv2 "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/testing/v2"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/journal"
)

// The values that must not be readable in a file.
const (
	replacedValue = "https://git.example.com/replaced-value.git"
	currentValue  = "https://git.example.com/current-value.git"
	deletedValue  = "https://git.example.com/deleted-value.git"
)

const identityProvider = "  - identity: {}\n"

// keyProvider is a provider of an encryption configuration with new keys of these
// names, the first of which encrypts.
func keyProvider(kind string, names ...string) string {
	keys := "  - " + kind + ":\n      keys:\n"
	for _, name := range names {
		keys += newKey(name)
	}
	return keys
}

func newKey(name string) string {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // does not fail
	return fmt.Sprintf("      - {name: %s, secret: %s}\n", name, base64.StdEncoding.EncodeToString(secret))
}

// encryptionConfig is a configuration of these providers for one resource.
func encryptionConfig(resource string, providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['" + resource + "']\n  providers:\n" + strings.Join(providers, "")
}

// encrypted runs a server as config says, "" without encryption.
func encrypted(t *testing.T, config string) func(*Options) {
	t.Helper()
	if config == "" {
		return func(*Options) {}
	}
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.EncryptionProviderConfig = path }
}

// writeHistory leaves each value where it can be: in objects, in the history of
// an update and in that of a delete.
func writeHistory(t *testing.T, s *runningServer) {
	t.Helper()
	client := s.client(t)
	providers := client.KommitV1alpha1().GitProviders("team")
	origin := createProvider(t, client, "origin", replacedValue)
	origin.Spec.URL = currentValue
	if _, err := providers.Update(t.Context(), origin, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	createProvider(t, client, "gone", deletedValue)
	if err := providers.Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func wantOrigin(t *testing.T, s *runningServer) *v1alpha1.GitProvider {
	t.Helper()
	list := listProviders(t, s.client(t))
	if len(list.Items) != 1 || list.Items[0].Spec.URL != currentValue {
		t.Fatalf("listed %+v, want origin", list.Items)
	}
	return &list.Items[0]
}

// rewrite is an update that changes nothing, which is what encrypts with the
// first key.
func rewrite(t *testing.T, s *runningServer) *v1alpha1.GitProvider {
	t.Helper()
	updated, err := s.client(t).KommitV1alpha1().GitProviders("team").Update(t.Context(), wantOrigin(t, s), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return updated
}

// readable are those of the values that the file holds in the clear.
func readable(t *testing.T, file string) []string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, v := range []string{replacedValue, currentValue, deletedValue} {
		if bytes.Contains(content, []byte(v)) {
			found = append(found, v)
		}
	}
	return found
}

func TestEncryptionAtRest(t *testing.T) {
	for _, test := range []struct {
		resource, provider string
		encrypted          bool
	}{
		{"gitproviders.kommit.dev", keyProvider("aesgcm", "one"), true},
		{"gitproviders.kommit.dev", keyProvider("secretbox", "one"), true},
		{"*.kommit.dev", keyProvider("secretbox", "one"), true},
		{"*.*", keyProvider("aesgcm", "one"), true},
		{"gittargets.kommit.dev", keyProvider("aesgcm", "one"), false},
		{"*.*", identityProvider, false},
	} {
		t.Run(test.resource+" "+strings.Fields(test.provider)[1], func(t *testing.T) {
			file := storageFile(t)
			server := runServer(t, file, encrypted(t, encryptionConfig(test.resource, test.provider)))
			<-server.serving
			writeHistory(t, server)
			wantOrigin(t, server)
			server.stop()
			found := readable(t, file)
			if test.encrypted && len(found) > 0 {
				t.Errorf("the file holds %v in the clear", found)
			}
			if !test.encrypted && len(found) != 3 {
				t.Errorf("the file holds %v in the clear, want all: the scan finds nothing", found)
			}
		})
	}
}

// The journal holds what CommitRequests say, so it is encrypted as they are.
func TestTheJournalIsEncryptedAsCommitRequestsAre(t *testing.T) {
	for resource, encrypts := range map[string]bool{"commitrequests.kommit.dev": true, "*.*": true, "gitproviders.kommit.dev": false} {
		t.Run(resource, func(t *testing.T) {
			file := storageFile(t)
			server := runServer(t, file, encrypted(t, encryptionConfig(resource, keyProvider("aesgcm", "one"))))
			<-server.serving
			if err := server.rows.Commit(t.Context(), []journal.Step{journal.Put("request/1", []byte(currentValue))}); err != nil {
				t.Fatal(err)
			}
			server.stop()
			if found := readable(t, file); (len(found) == 0) != encrypts {
				t.Errorf("the file holds %v in the clear", found)
			}
		})
	}
}

// Old key, both keys, new key: what is not rewritten in between cannot be read
// afterwards, and what cannot be read is never left out.
func TestKeyRotation(t *testing.T) {
	file := storageFile(t)
	older, newer := newKey("older"), newKey("newer")
	const kind = "  - secretbox:\n      keys:\n"
	with := func(keys ...string) *runningServer {
		s := runServer(t, file, encrypted(t, encryptionConfig("gitproviders.kommit.dev", kind+strings.Join(keys, ""))))
		<-s.serving
		return s
	}
	server := with(older)
	writeHistory(t, server)
	before := wantOrigin(t, server)
	if same := rewrite(t, server); same.ResourceVersion != before.ResourceVersion {
		t.Errorf("an update that changes nothing was written: %s after %s", same.ResourceVersion, before.ResourceVersion)
	}
	server.stop()

	server = with(newer) // too early
	wantUnreadable(t, server)
	server.stop()

	server = with(newer, older)
	wantOrigin(t, server)
	if after := rewrite(t, server); after.ResourceVersion == before.ResourceVersion {
		t.Error("an update that changes nothing did not encrypt with the newer key")
	}
	server.stop()

	server = with(newer)
	wantOrigin(t, server)
	server.stop()
	if found := readable(t, file); len(found) > 0 {
		t.Errorf("the file holds %v in the clear", found)
	}
}

// wantUnreadable checks that origin's readers get an error that names it.
func wantUnreadable(t *testing.T, s *runningServer) {
	t.Helper()
	providers := s.client(t).KommitV1alpha1().GitProviders("team")
	list, err := providers.List(t.Context(), metav1.ListOptions{})
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Code != http.StatusInternalServerError || !strings.Contains(status.Status().Message, "team/origin") {
		t.Errorf("list: %+v, %v; want a 500 that names the object", list, err)
	}
	if got, err := providers.Get(t.Context(), "origin", metav1.GetOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("get: %+v, %v; want a 500", got, err)
	}
	if _, err := providers.Update(t.Context(), provider("origin", currentValue), metav1.UpdateOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("update: %v; want a 500", err)
	}
	if _, err := providers.Create(t.Context(), provider("origin", currentValue), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create: %v; want AlreadyExists", err)
	}
}

func TestWrongKey(t *testing.T) {
	file := storageFile(t)
	server := runServer(t, file, encrypted(t, encryptionConfig("*.*", keyProvider("aesgcm", "one"))))
	<-server.serving
	writeHistory(t, server)
	server.stop()
	for name, config := range map[string]string{
		"another key of the same name": encryptionConfig("*.*", keyProvider("aesgcm", "one")),
		"another provider":             encryptionConfig("*.*", keyProvider("secretbox", "one")),
		"no encryption":                "",
	} {
		t.Run(name, func(t *testing.T) {
			server := runServer(t, file, encrypted(t, config))
			<-server.serving
			defer server.stop()
			wantUnreadable(t, server)
		})
	}
}

// What was written before encryption was turned on stays in the file until its
// pages are written again. A restored backup holds none of it.
func TestEncryptionTurnedOnLater(t *testing.T) {
	file := storageFile(t)
	server := runServer(t, file)
	<-server.serving
	writeHistory(t, server)
	server.stop()

	key := keyProvider("aesgcm", "one")
	server = runServer(t, file, encrypted(t, encryptionConfig("*.*", key, identityProvider)))
	<-server.serving
	rewrite(t, server)
	if found := readable(t, file); len(found) == 0 {
		t.Error("the file holds nothing in the clear: docs/storage.md says otherwise")
	}
	backup := server.backup(t)
	server.stop()
	restored := restore(t, backup)
	if found := readable(t, restored); len(found) > 0 {
		t.Errorf("the restored file holds %v in the clear", found)
	}
	server = runServer(t, restored, encrypted(t, encryptionConfig("*.*", key)))
	<-server.serving
	wantOrigin(t, server)
}

func TestEncryptionConfigurationIsRequiredToBeGood(t *testing.T) {
	for name, content := range map[string]string{
		"not there": "",
		"no keys":   encryptionConfig("*.*", "  - aesgcm: {keys: []}\n"),
		"not YAML":  "\t",
	} {
		options := NewOptions()
		options.StorageFile = storageFile(t)
		if content == "" {
			options.EncryptionProviderConfig = filepath.Join(t.TempDir(), "none.yaml")
		} else {
			encrypted(t, content)(options)
		}
		if err := options.serve(t.Context(), testConfig(t, options), nil); err == nil || !strings.Contains(err.Error(), options.EncryptionProviderConfig) {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
		if _, err := os.Stat(options.StorageFile); err == nil {
			t.Errorf("%s: a storage file was made", name)
		}
	}
}

// A changed configuration is followed without a restart.
func TestEncryptionConfigurationIsReloaded(t *testing.T) {
	interval := controller.EncryptionConfigFileChangePollDuration
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond
	t.Cleanup(func() { controller.EncryptionConfigFileChangePollDuration = interval })

	file := storageFile(t)
	var path string
	server := runServer(t, file, encrypted(t, encryptionConfig("*.*", identityProvider)), func(o *Options) {
		o.EncryptionProviderConfigAutomaticReload = true
		path = o.EncryptionProviderConfig
	})
	<-server.serving
	writeHistory(t, server)
	before := wantOrigin(t, server).ResourceVersion

	replacement := path + ".new"
	if err := os.WriteFile(replacement, []byte(encryptionConfig("*.*", keyProvider("aesgcm", "one"), identityProvider)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replacement, path); err != nil {
		t.Fatal(err)
	}
	for rewrite(t, server).ResourceVersion == before {
	}
	if _, metrics := server.get(t, "admin", "/metrics"); !strings.Contains(string(metrics), "apiserver_encryption_config_controller_automatic_reloads_total") {
		t.Error("no metric of reloads")
	}
}

// As in kube-apiserver, a key management service that does not answer makes the
// server unready and leaves it alive.
func TestKMSHealthIsReadiness(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "kms.sock")
	server := runServer(t, storageFile(t), encrypted(t, encryptionConfig("*.*",
		"  - kms: {apiVersion: v2, name: test, endpoint: 'unix://"+socket+"', timeout: 1s}\n")))
	<-server.serving
	server.until(t, "/livez", http.StatusOK)
	for _, path := range []string{"/readyz", "/healthz"} {
		if _, body := server.get(t, "admin", path); !strings.Contains(string(body), "[-]kms-provider") {
			t.Errorf("%s does not name the plugin: %s", path, body)
		}
	}
	plugin := kmsv2.NewBase64Plugin(t, socket) // encrypts nothing, and speaks the protocol
	server.until(t, "/readyz", http.StatusOK, http.StatusInternalServerError)
	server.until(t, "/healthz", http.StatusOK, http.StatusInternalServerError)
	writeHistory(t, server)
	wantOrigin(t, server)
	if len(plugin.LastEncryptRequest()) == 0 {
		t.Error("the plugin was not asked")
	}
}
