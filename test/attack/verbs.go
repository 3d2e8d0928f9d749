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
		"create pod":         withArguments(createPod),
		"create pod of many": withArguments(createPodOfMany),
		"create config map":  withArguments(createConfigMap),
		"delete pod":         withArguments(deletePod),
		"request":            withArguments(makeRequest),
		"may request":        withArguments(mayRequest),
		"may soon request":   withArguments(maySoonRequest),
		"change node":        withArguments(changeNode),
		"run victim":         withArguments(runVictim),

		// Of identities and rights.
		"make ghost":            withArguments(makeGhost),
		"be administrator":      withArguments(beAdministrator),
		"bind role":             withArguments(bindRole),
		"let group label nodes": withArguments(letGroupLabelNodes),

		// Of nodes and what programs serve.
		"run as user":         withArguments(runAsUser),
		"open path":           withArguments(openPath),
		"read":                withArguments(readPage),
		"serve device plugin": withArguments(serveDevicePlugin),
		"start DRA driver":    withArguments(startDRADriver),
		"give GPUs the name":  withArguments(renameGPUs),

		// What came of it.
		"await device":           withArguments(awaitDevice),
		"await running":          withArguments(awaitRunning),
		"await scheduled":        withArguments(awaitScheduled),
		"await debug container":  withArguments(awaitDebugContainer),
		"await pod of job":       withArguments(awaitPodOfJob),
		"has annotation":         withArguments(hasAnnotation),
		"open more devices than": withArguments(openMoreDevicesThan),
		"seems held":             withArguments(seemsHeld),
		"seems free":             withArguments(seemsFree),
		"read config.json":       withArguments(readConfigJSON),
		"requests devices":       withArguments(requestsDevices),
		"read leniently":         withArguments(readLeniently),

		// Programs of their own: seals and allocations.
		"forge seal":                     withArguments(forgeSeal),
		"forge later generation":         withArguments(forgeLaterGeneration),
		"replay allocation":              withArguments(replayAllocation),
		"rewrite allocation":             withArguments(rewriteAllocation),
		"change before start":            wholeAttempt(changeBeforeStart),
		"remove annotation when refused": withArguments(removeAnnotation),

		// Programs of their own: kubecri, its plugins and the runtime.
		"run while kubecri is away":    withArguments(runWhileAway),
		"await end of container":       withArguments(awaitEnd),
		"await that container stays":   withArguments(awaitThatContainerStays),
		"require kubecri and stop it":  withArguments(requireKubecri),
		"restore pod":                  withArguments(restorePod),
		"restore container":            withArguments(restoreContainer),
		"send too much":                withArguments(sendTooMuch),
		"send too much without bounds": withArguments(sendTooMuchWithoutBounds),
		"fill list of containers":      withArguments(fillListOfContainers),
		"flood with refusals":          withArguments(floodWithRefusals),
		"crowd node":                   withArguments(crowdNode),
		"load plugin":                  withArguments(loadPlugin),
		"register plugin":              withArguments(registerPlugin),
		"register many plugins":        withArguments(registerManyPlugins),
		"annotate containers":          withArguments(annotateContainers),

		// Programs of their own: the scheduler, and reports of nodes.
		"crowd scheduler":          withArguments(crowdScheduler),
		"place scheduler":          withArguments(placeScheduler),
		"publish address":          withArguments(publishAddress),
		"hold enrolment":           withArguments(holdEnrolment),
		"report count":             withArguments(reportCount),
		"report kinds for top":     withArguments(showUse),
		"report best devices":      withArguments(reportBestDevices),
		"report others' devices":   withArguments(reportOthersDevices),
		"report others' resources": withArguments(reportOthersResources),
	}
}

// wholeAttempt returns a verb without arguments that makes a whole attempt, and says itself what is
// a refusal: the API server's in its error is none.
func wholeAttempt(try Try) verb {
	return withArguments(func(ctx context.Context, p *trial, _ nothing) (Got, error) {
		got, err := try(ctx, p.Stage)
		if err != nil {
			err = errors.New(err.Error())
		}
		return got, err
	})
}
