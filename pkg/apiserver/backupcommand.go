// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kommit-dev/kommit/pkg/storage/bolt"
)

// serviceAccountToken is where a pod has its own.
const serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

// backupOptions are the command line of kommit-apiserver backup.
type backupOptions struct {
	server, serverName   string
	certificateAuthority string
	insecure             bool
	tokenFile            string
	kubeconfig           string
}

func (o *backupOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.server, "server", o.server, "URL of kommit-apiserver itself: kube-apiserver does not pass backups on.")
	fs.StringVar(&o.serverName, "tls-server-name", o.serverName, "Name that the server's certificate is for, if not the one in --server.")
	fs.StringVar(&o.certificateAuthority, "certificate-authority", o.certificateAuthority, "File with the CA of the server's certificate. Empty: those of this machine.")
	fs.BoolVar(&o.insecure, "insecure-skip-tls-verify", o.insecure, "Do not verify the server's certificate. Whoever answers then gets the token.")
	fs.StringVar(&o.tokenFile, "token-file", o.tokenFile, "File with the token to show. Default: that of --kubeconfig, or else of the pod's ServiceAccount.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, "File whose current user to be. Its server is not asked.")
}

// clientConfig reaches the server as the user of the flags.
func (o *backupOptions) clientConfig() (*rest.Config, error) {
	server, err := url.Parse(o.server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, fmt.Errorf("--server must be a URL that begins with https://, not %q", o.server)
	}
	config := &rest.Config{}
	if o.kubeconfig != "" {
		user, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig: %w", err)
		}
		config.BearerToken, config.BearerTokenFile = user.BearerToken, user.BearerTokenFile
		config.Username, config.Password = user.Username, user.Password
		config.AuthProvider, config.ExecProvider = user.AuthProvider, user.ExecProvider
		config.CertFile, config.CertData = user.CertFile, user.CertData
		config.KeyFile, config.KeyData = user.KeyFile, user.KeyData
	}
	file := o.tokenFile
	if file == "" && o.kubeconfig == "" {
		file = serviceAccountToken
	}
	if file != "" {
		token, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		config.BearerToken, config.BearerTokenFile = strings.TrimSpace(string(token)), ""
	}
	config.Host = strings.TrimSuffix(o.server, "/")
	config.CAFile, config.Insecure, config.ServerName = o.certificateAuthority, o.insecure, o.serverName
	return config, nil
}

// save writes a backup of the server to path.
func (o *backupOptions) save(ctx context.Context, path string) error {
	config, err := o.clientConfig()
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	// A redirect would take the token elsewhere.
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+BackupPath, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s refused the backup: %w", config.Host, statusOf(response))
	}
	return bolt.SaveBackup(path, response.Body)
}

// statusOf is what the server says went wrong.
func statusOf(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return err
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Kind != "Status" {
		return apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, BackupPath, strings.TrimSpace(string(body)), 0, true)
	}
	return &apierrors.StatusError{ErrStatus: status}
}

func newBackupCommand() *cobra.Command {
	options := &backupOptions{server: "https://localhost:8443"}
	command := &cobra.Command{
		Use:   "backup FILE",
		Short: "Save a consistent copy of a running server's storage file",
		Long: `Save a consistent copy of a running server's storage file to FILE, which must
not exist, and check it. It needs "get" on the non-resource URL ` + BackupPath + `, and
holds every object of kommit.dev: keep it as you keep the storage file.`,
		Example: `  kubectl -n kommit-system port-forward deployment/kommit 8443 &
  kommit-apiserver backup kommit.backup --kubeconfig ~/.kube/config \
    --certificate-authority ca.crt --tls-server-name kommit.kommit-system.svc`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := options.save(ctx, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), "Saved and checked %s.\n", args[0])
			return err
		},
	}
	options.addFlags(command.Flags())
	return command
}

func newRestoreCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "restore BACKUP FILE",
		Short: "Make a storage file from a backup",
		Long: `Make the storage file FILE, which must not exist, from a backup. No server is
asked, and none must be running on FILE. What happened since the backup is lost.
Clients see no resourceVersion go back: each revision is raised above all that can
have been given out, and watches from before get "410 Expired" and list again.`,
		Example: `  kommit-apiserver restore kommit.backup /var/lib/kommit/kommit.db`,
		Args:    cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			if err := bolt.Restore(args[0], args[1], time.Now()); err != nil {
				return err
			}
			_, err := fmt.Fprintf(command.OutOrStdout(), `Restored %s. What happened since the backup is lost.
The server must be able to write it: check its owner. Clients will be told that
their resourceVersions are expired, and list again.
`, args[1])
			return err
		},
	}
}
