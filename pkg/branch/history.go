// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package branch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
	"github.com/kommit-dev/kommit/pkg/git"
	"github.com/kommit-dev/kommit/pkg/window"
)

// What was committed, and would be, as the API serves it. All errors here are API
// errors.

// page is where a list of commits goes on: clients get it as an opaque token.
type page struct {
	Tip  string `json:"tip"`
	Skip int    `json:"skip"`
}

func (p page) token() string {
	encoded, err := json.Marshal(p)
	if err != nil {
		return "" // cannot be: a string and a number
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

func parsePage(token string) (page, error) {
	var p page
	if token == "" {
		return p, nil
	}
	decoded, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = json.Unmarshal(decoded, &p)
	}
	if err != nil || p.Tip == "" || p.Skip <= 0 || p.Skip > math.MaxInt32 {
		return p, apierrors.NewBadRequest("continue: must be the value that a page of commits came with")
	}
	return p, nil
}

// Commits lists the commits of the target's branch that touch its path, newest
// first: at most limit, behind the page that the token came with.
func (p *Pool) Commits(ctx context.Context, target *v1alpha1.GitTarget, limit int64, token string) (*v1alpha1.CommitList, error) {
	at, err := parsePage(token)
	if err != nil {
		return nil, err
	}
	d, err := p.readable(target)
	if err != nil {
		return nil, err
	}
	log, err := d.repository.Log(ctx, git.LogOptions{Branch: d.remote.branch, Path: d.path, Tip: at.Tip, Skip: at.Skip, Limit: int(limit)})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, apierrors.NewResourceExpired(fmt.Sprintf("branch %q does not hold the commit any more that this list began with: list again without continue", d.remote.branch))
	case err != nil:
		return nil, historyError(nameOf(target), err)
	}
	askedFor, err := p.askedFor(target.Namespace)
	if err != nil {
		return nil, err
	}
	list := &v1alpha1.CommitList{Items: make([]v1alpha1.Commit, len(log.Commits))}
	for i, c := range log.Commits {
		list.Items[i] = commitOf(target.Namespace, c, askedFor)
	}
	if log.More {
		list.Continue = page{Tip: log.Tip, Skip: at.Skip + len(log.Commits)}.token()
	}
	return list, nil
}

// Commit is the commit that a request produced, with its diff.
func (p *Pool) Commit(ctx context.Context, request *v1alpha1.CommitRequest) (*v1alpha1.Commit, error) {
	name := types.NamespacedName{Namespace: request.Namespace, Name: request.Spec.GitTargetRef.Name}
	if err := p.started(); err != nil {
		return nil, err
	}
	target, err := p.destinations.targets.Get(name)
	if err != nil {
		return nil, err
	}
	d, err := p.readable(target)
	if err != nil {
		return nil, err
	}
	shown, err := d.repository.Show(ctx, request.Status.Commit, d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		missing := apierrors.NewNotFound(v1alpha1.Resource("commitrequests/commits"), request.Name)
		missing.ErrStatus.Message = fmt.Sprintf("the remote does not have commit %s any more", request.Status.Commit)
		return nil, missing
	case err != nil:
		return nil, historyError(name, err)
	}
	commit := commitOf(request.Namespace, shown.LoggedCommit, map[string]string{request.Status.Commit: request.Name})
	commit.Diff = strings.ToValidUTF8(shown.Diff, "\uFFFD")
	commit.Truncated = commit.Truncated || shown.Truncated
	return &commit, nil
}

// Diff is what closing an open window now would commit, behind what is closed
// already and not on the remote yet.
func (p *Pool) Diff(ctx context.Context, namespace, name string) (*v1alpha1.CommitWindowDiff, error) {
	if err := p.started(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	s, open := p.engine.Window(name)
	p.mu.Unlock()
	if !open || s.Target.Namespace != namespace {
		return nil, apierrors.NewNotFound(v1alpha1.Resource("commitwindows"), name)
	}
	d, err := p.destinations.resolve(s.Target)
	if err != nil {
		return nil, historyError(s.Target, err)
	}
	e := &entry{destination: d, write: window.Write{
		Name: s.Name, Kind: window.WindowWrite, Target: s.Target, Author: s.Author, Changes: s.Changes, Opened: s.Opened, Closed: time.Now(),
	}}
	commits := append(p.ahead(s.Target, d), e.preview())
	preview, err := d.repository.Preview(ctx, d.remote.branch, commits...)
	for err != nil && e.skipPath(err) {
		preview, err = d.repository.Preview(ctx, d.remote.branch, commits...)
	}
	if err != nil {
		return nil, historyError(s.Target, err)
	}
	diff := &v1alpha1.CommitWindowDiff{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(s.Opened)},
		Branch:     d.remote.branch,
		Parent:     preview.Base,
		Files:      changedFiles(preview.Files),
		Diff:       strings.ToValidUTF8(preview.Diff, "\uFFFD"),
		Truncated:  preview.Truncated,
	}
	for _, err := range e.unsaved {
		diff.NotSaved = append(diff.NotSaved, err.Error())
	}
	return diff, nil
}

// preview is the commit of an entry that is only looked at: that nothing can be
// saved is no failure then.
func (e *entry) preview() git.Commit {
	c := e.commit()
	edit := c.Edit
	c.Edit = func(ctx context.Context, tree *git.Tree) ([]git.File, error) {
		files, err := edit(ctx, tree)
		if err != nil && len(e.unsaved) > 0 {
			return nil, nil
		}
		return files, err
	}
	return c
}

// ahead are the commits of a target that are closed and not on the remote yet,
// made of copies: the entries are their session's.
func (p *Pool) ahead(target types.NamespacedName, d destination) []git.Commit {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.backlogs[target]
	if b == nil {
		return nil
	}
	var commits []git.Commit
	for _, e := range b.entries {
		if !e.refused {
			commits = append(commits, (&entry{write: e.write, destination: d, skip: maps.Clone(e.skip)}).preview())
		}
	}
	return commits
}

// started says whether there is anything to be asked.
func (p *Pool) started() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.destinations == nil {
		return apierrors.NewServiceUnavailable("the server is starting: try again")
	}
	return nil
}

// readable is where a target's commits are.
func (p *Pool) readable(target *v1alpha1.GitTarget) (destination, error) {
	if err := p.started(); err != nil {
		return destination{}, err
	}
	d, err := p.destinations.resolveTarget(target)
	if err != nil {
		return destination{}, historyError(nameOf(target), err)
	}
	return d, nil
}

// historyError says to a client why Git cannot be read. What stands in the target's
// own conditions is a conflict with its state; all else is about the remote.
func historyError(target types.NamespacedName, err error) error {
	var (
		stalled *StalledError
		status  apierrors.APIStatus
	)
	switch {
	case errors.As(err, &stalled):
		return apierrors.NewConflict(v1alpha1.Resource("gittargets"), target.Name, err)
	case errors.As(err, &status):
		return err
	}
	unavailable := apierrors.NewServiceUnavailable(err.Error())
	var unreachable *git.UnreachableError
	if errors.As(err, &unreachable) {
		unavailable.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(max(time.Second, unreachable.RetryAfter).Seconds())}
	}
	return unavailable
}

// askedFor names the request of each commit that has one still.
func (p *Pool) askedFor(namespace string) (map[string]string, error) {
	requests, err := p.config.Informers.CommitRequests().Lister().CommitRequests(namespace).List(labels.Everything())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	names := map[string]string{}
	for _, r := range requests {
		if r.Status.Commit != "" {
			names[r.Status.Commit] = r.Name
		}
	}
	return names, nil
}

func commitOf(namespace string, c git.LoggedCommit, askedFor map[string]string) v1alpha1.Commit {
	commit := v1alpha1.Commit{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Hash, CreationTimestamp: metav1.NewTime(c.Committer.When)},
		Hash:       c.Hash,
		Parents:    c.Parents,
		Author:     signatureOf(c.Author),
		Committer:  signatureOf(c.Committer),
		Message:    strings.TrimSuffix(c.Message, "\n"), // Git ends every message so
		Files:      changedFiles(c.Files),
		Truncated:  c.FilesTruncated,
	}
	if name := askedFor[c.Hash]; name != "" {
		commit.CommitRequestRef = &v1alpha1.LocalObjectReference{Name: name}
	}
	return commit
}

func signatureOf(s git.Signature) v1alpha1.CommitSignature {
	return v1alpha1.CommitSignature{Name: s.Name, Email: s.Email, Time: metav1.NewTime(s.When)}
}

func changedFiles(files []git.ChangedFile) []v1alpha1.ChangedFile {
	changed := make([]v1alpha1.ChangedFile, len(files))
	for i, f := range files {
		changed[i] = v1alpha1.ChangedFile{Path: strings.ToValidUTF8(f.Path, "\uFFFD"), Change: v1alpha1.FileChange(f.Change)}
	}
	return changed
}
