// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// observeCall counts a call to the runtime.
func (m *measures) observeCall(call criproxy.Call) {
	method := call.Method
	if _, known := m.methods[method]; !known {
		method = other
	}
	code := call.Code.String()
	if call.Code > codes.Unauthenticated {
		code = other
	}
	m.calls.WithLabelValues(method, code).Inc()
	m.callTime.WithLabelValues(method).Observe(call.Took.Seconds())
	m.addedTime.WithLabelValues(method).Observe((call.Took - call.Waited).Seconds())
}

// other is the label of all methods and codes that this release does not know, so that their number
// has a limit.
const other = "other"

// criMethods returns the methods of the CRI that this release knows, by full name, and whether each
// is unary.
func criMethods() map[string]bool {
	unary := map[string]bool{}
	for _, service := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc,
		runtimeapi.ImageService_ServiceDesc} {
		for _, method := range service.Methods {
			unary["/"+service.ServiceName+"/"+method.MethodName] = true
		}
		for _, stream := range service.Streams {
			unary["/"+service.ServiceName+"/"+stream.StreamName] = false
		}
	}
	return unary
}
