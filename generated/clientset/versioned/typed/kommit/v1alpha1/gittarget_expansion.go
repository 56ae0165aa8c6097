// Copyright The Kommit Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"context"
	"strconv"

	kommitv1alpha1 "github.com/kommit-dev/kommit/apis/kommit/v1alpha1"
)

// GitTargetExpansion is what the generator has no words for: a subresource that is
// a list with pages.
type GitTargetExpansion interface {
	// ListCommits returns the commits of the target's branch that touch its path,
	// newest first.
	ListCommits(ctx context.Context, gitTargetName string, opts kommitv1alpha1.CommitListOptions) (*kommitv1alpha1.CommitList, error)
}

// ListCommits implements GitTargetExpansion.
func (c *gitTargets) ListCommits(ctx context.Context, gitTargetName string, opts kommitv1alpha1.CommitListOptions) (*kommitv1alpha1.CommitList, error) {
	request := c.GetClient().Get().
		Namespace(c.GetNamespace()).
		Resource("gittargets").
		Name(gitTargetName).
		SubResource("commits")
	if opts.Limit != 0 {
		request.Param("limit", strconv.FormatInt(opts.Limit, 10))
	}
	if opts.Continue != "" {
		request.Param("continue", opts.Continue)
	}
	result := &kommitv1alpha1.CommitList{}
	return result, request.Do(ctx).Into(result)
}
