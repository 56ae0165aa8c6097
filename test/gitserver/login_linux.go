// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package gitserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
)

// privateView shows sshd a passwd, a shadow and a /run of our own, and then runs it.
const privateView = `set -e
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shadow" /etc/shadow
mount -t tmpfs tmpfs /run
mkdir /run/sshd
shift
exec "$@"
`

// newLogin prepares what sshd wants of the machine. Run by an ordinary user it
// wants nothing. Run by root it insists on a user called sshd, for the process
// that talks to clients which have not logged in, on the empty directory
// /run/sshd, and on an account that is not locked. Rather than change the machine,
// it gets to see these in a mount namespace of its own; where that is not allowed,
// as in most containers, the user is made, as Debian's package makes it.
func newLogin(ctx context.Context, dir string, log io.Writer) (login, error) {
	name, err := currentUser()
	if err != nil || os.Geteuid() != 0 {
		return login{user: name}, err
	}
	passwd := fmt.Sprintf("%s:x:0:0::%s:/bin/sh\nsshd:x:65533:65534::/run/sshd:/usr/sbin/nologin\n", name, dir)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "passwd"), []byte(passwd), 0o644),                           // #nosec G306 -- as in /etc
		os.WriteFile(filepath.Join(dir, "shadow"), fmt.Appendf(nil, "%s:x:1::::::\n", name), 0o600), // no password, and not locked
	); err != nil {
		return login{}, err
	}
	l := login{user: name, namespace: true, wrap: []string{"/bin/sh", "-c", privateView, "sh", dir}}
	probe := exec.CommandContext(ctx, l.wrap[0], append(l.wrap[1:], "true")...) // #nosec G204 -- the script above
	unshareMounts(probe)
	if probe.Run() == nil {
		return l, nil
	}
	if err := makeUser(ctx, log); err != nil {
		return login{}, err
	}
	return login{user: name}, os.MkdirAll("/run/sshd", 0o755) // #nosec G301 -- as sshd wants it
}

func makeUser(ctx context.Context, log io.Writer) error {
	var unknown user.UnknownUserError
	if _, err := user.Lookup("sshd"); !errors.As(err, &unknown) {
		return err
	}
	fmt.Fprintln(log, "Making the system user sshd, which sshd wants when root runs it: no mount namespace may be made here. Run the tests as an ordinary user to avoid that.")
	cmd := exec.CommandContext(ctx, "useradd", "--system", "--no-create-home", "--home-dir", "/run/sshd", "--shell", "/usr/sbin/nologin", "sshd")
	if out, err := cmd.CombinedOutput(); err != nil {
		if _, made := user.Lookup("sshd"); made == nil {
			return nil // by the tests of another package
		}
		return fmt.Errorf("sshd run by root wants a user sshd, and useradd failed: %w: %s", err, out)
	}
	return nil
}

func unshareMounts(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}
