// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
)

// verbs are what steps can do. Each is described with its function.
func verbs() map[string]verb {
	return map[string]verb{
		// Of the API server's objects.
		"create pod":         with(createPod),
		"create pod of many": with(createPodOfMany),
		"create config map":  with(createConfigMap),
		"delete pod":         with(deletePod),
		"request":            with(makeRequest),
		"may request":        with(mayRequest),
		"may soon request":   with(maySoonRequest),
		"change node":        with(changeNode),
		"run victim":         with(runVictim),

		// Of identities and rights.
		"make ghost":            with(makeGhost),
		"be administrator":      with(beAdministrator),
		"bind role":             with(bindRole),
		"let group label nodes": with(letGroupLabelNodes),

		// Of nodes and what programs serve.
		"run as user":         with(runAsUser),
		"open path":           with(openPath),
		"read":                with(readPage),
		"serve device plugin": with(serveDevicePlugin),
		"start DRA driver":    with(startDRADriver),

		// What came of it.
		"await device":           with(awaitDevice),
		"await running":          with(awaitRunning),
		"await scheduled":        with(awaitScheduled),
		"await debug container":  with(awaitDebugContainer),
		"await pod of job":       with(awaitPodOfJob),
		"has annotation":         with(hasAnnotation),
		"open more devices than": with(openMoreDevicesThan),
		"seems held":             with(seemsHeld),
		"seems free":             with(seemsFree),
		"read config.json":       with(readConfigJSON),
		"requests devices":       with(requestsDevices),
		"read leniently":         with(readLeniently),

		// Programs of their own: seals and allocations.
		"forge seal":                     with(forgeSeal),
		"forge later generation":         with(forgeLaterGeneration),
		"replay allocation":              with(replayAllocation),
		"rewrite allocation":             with(rewriteAllocation),
		"change before start":            whole(changeBeforeStart),
		"remove annotation when refused": with(removeAnnotation),

		// Programs of their own: kubecri, its plugins and the runtime.
		"run while kubecri is away":    with(runWhileAway),
		"await end of container":       with(awaitEnd),
		"await that container stays":   with(awaitThatContainerStays),
		"require kubecri and stop it":  with(requireKubecri),
		"restore pod":                  with(restorePod),
		"restore container":            with(restoreContainer),
		"send too much":                with(sendTooMuch),
		"send too much without bounds": with(sendTooMuchWithoutBounds),
		"fill list of containers":      with(fillListOfContainers),
		"flood with refusals":          with(floodWithRefusals),
		"load plugin":                  with(loadPlugin),
		"register plugin":              with(registerPlugin),
		"register many plugins":        with(registerManyPlugins),
		"annotate containers":          with(annotateContainers),

		// Programs of their own: the scheduler, and reports of nodes.
		"crowd scheduler":          with(crowdScheduler),
		"place scheduler":          with(placeScheduler),
		"publish address":          with(publishAddress),
		"hold enrolment":           with(holdEnrolment),
		"report count":             with(reportCount),
		"report best devices":      with(reportBestDevices),
		"report others' devices":   with(reportOthersDevices),
		"report others' resources": with(reportOthersResources),
	}
}

// whole returns a verb without arguments that makes a whole attempt, and says itself what is a
// refusal: the API server's in its error is none.
func whole(try Try) verb {
	return with(func(ctx context.Context, p *trial, _ nothing) (Got, error) {
		got, err := try(ctx, p.Stage)
		if err != nil {
			err = errors.New(err.Error())
		}
		return got, err
	})
}
