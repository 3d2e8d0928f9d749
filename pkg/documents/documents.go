// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package documents says where users find the documents: who has installed a package or an image
// has no directory docs.
package documents

// URL is the address of the directory of documents, with a slash at its end.
const URL = "https://github.com/kubedevice/kubedevice/blob/main/docs/"
