// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package advertise

import "github.com/kubedevice/kubedevice/pkg/sdk/types"

// patchedFunc receives the outcome of each patch.
type patchedFunc func(err error)

func (p patchedFunc) ObservePatch(err error) { p(err) }
func (p patchedFunc) ShowOmitted([]string)   {}

// omittedLabels receives the labels of the sources that are left out.
type omittedLabels chan<- []string

func (o omittedLabels) ObservePatch(error)          {}
func (o omittedLabels) ShowOmitted(labels []string) { o <- labels }

// refusedFunc receives why an inventory cannot be published.
type refusedFunc func(err error)

func (r refusedFunc) WarnOfInventory(err error) { r(err) }

// publishedFunc receives the names of the published extended resources.
type publishedFunc func(names []string)

func (p publishedFunc) NotePublished(names []string) { p(names) }

// kubeletCounts is a kubelet that publishes one extended resource.
type kubeletCounts types.ResourceName

func (k kubeletCounts) KubeletCounts(extended types.ResourceName) bool {
	return extended == types.ResourceName(k)
}
