# kstate in a container. Two variants: without Java and Spark, which is all but restorations on Spark (the default), and
# with them:
#
#   pip wheel --no-deps -w dist/image .      # of what is here; or that of a release, in dist/VERSION
#   docker build -t kstate .
#   docker build -t kstate:java --target java .
#
# The user of a container has to be the application's, who owns the state directory; kstate refuses nothing less:
#
#   docker run --rm --user "$(stat -c %u:%g /var/lib/kafka-streams/my-app)" \
#     -v /var/lib/kafka-streams:/var/lib/kafka-streams kstate ls /var/lib/kafka-streams/my-app
#
# Mount the directory *above* the application's, as here: a change is an exchange of two directories in it.

# scripts/base-image.sh pins it by the digest of the newest image.
ARG BASE=debian:bookworm-slim

FROM $BASE AS build-slim
COPY scripts/image-steps.sh /
COPY dist/*/kstate-*.whl requirements.lock /wheel/
RUN sh /image-steps.sh build slim /wheel/kstate-*.whl /wheel/requirements.lock

FROM $BASE AS build-java
COPY scripts/image-steps.sh /
COPY dist/*/kstate-*.whl requirements.lock /wheel/
RUN sh /image-steps.sh build java /wheel/kstate-*.whl /wheel/requirements.lock

FROM $BASE AS java
COPY scripts/image-steps.sh /
RUN sh /image-steps.sh run java
COPY --from=build-java /opt/kstate /opt/kstate
ENV PATH=/opt/kstate/bin:$PATH LANG=C.UTF-8
RUN sh /image-steps.sh warm java && rm /image-steps.sh
USER 10001:10001
WORKDIR /home/kstate
ENTRYPOINT ["kstate"]
CMD ["--help"]

FROM $BASE AS slim
COPY scripts/image-steps.sh /
RUN sh /image-steps.sh run slim && rm /image-steps.sh
COPY --from=build-slim /opt/kstate /opt/kstate
ENV PATH=/opt/kstate/bin:$PATH LANG=C.UTF-8
USER 10001:10001
WORKDIR /home/kstate
ENTRYPOINT ["kstate"]
CMD ["--help"]
