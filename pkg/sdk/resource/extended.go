// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"strings"

	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

// The limits of names in Kubernetes, in bytes.
const (
	maxDomain = 253 // RFC 1123
	maxName   = 63
	quota     = "requests." // begins a resource's name in a ResourceQuota
)

// IsExtendedResource reports whether Kubernetes takes the name for that of an extended resource,
// such as nvidia.com/gpu: a domain and a name, which a ResourceQuota can name too, and nothing of
// Kubernetes' own. It is the rule of IsExtendedResourceName in
// k8s.io/kubernetes/pkg/apis/core/v1/helper, which the API server, the scheduler and the kubelet
// share: any domain that ends in kubernetes.io is Kubernetes' own, example-kubernetes.io too.
func IsExtendedResource(name types.ResourceName) bool {
	domain, kind, qualified := strings.Cut(string(name), "/")
	return qualified && !strings.HasSuffix(domain, "kubernetes.io") && !strings.HasPrefix(domain, quota) &&
		len(quota)+len(domain) <= maxDomain && isDomain(domain) && isName(kind)
}

// isDomain reports whether s is labels of lower-case letters, digits and inner dashes, joined by
// dots.
func isDomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isLower(c) && !isDigit(c) && c != '-' {
				return false
			}
		}
	}
	return true
}

// isName reports whether s begins and ends with a letter or a digit and has dashes, dots and
// underscores between them.
func isName(s string) bool {
	if s == "" || len(s) > maxName || !isAlphanumeric(s[0]) || !isAlphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}

func isLower(c byte) bool        { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool        { return '0' <= c && c <= '9' }
func isAlphanumeric(c byte) bool { return isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z' }
