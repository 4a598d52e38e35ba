// Two parts wear while there is work, and may be serviced, one at a time, while there is none. Does one of them break
// before the machine is retired?
mdp
const double RETIRES = 0.02;
const double GOES_ON = 1-RETIRES;
module machine
  at : [0..2] init 0; // 0 works, 1 is broken, 2 is retired
  busy : bool init true;
  w1 : [0..4] init 0;
  w2 : [0..4] init 0;
  [run] at=0 & busy -> RETIRES : (at'=2) & (w1'=0) & (w2'=0)
    + GOES_ON*0.003*(w1*w1+w2*w2) : (at'=1) & (w1'=0) & (w2'=0)
    + GOES_ON*(1-0.003*(w1*w1+w2*w2))*0.3 : (w1'=min(w1+1,4))
    + GOES_ON*(1-0.003*(w1*w1+w2*w2))*0.2 : (w2'=min(w2+1,4))
    + GOES_ON*(1-0.003*(w1*w1+w2*w2))*0.3 : (busy'=false)
    + GOES_ON*(1-0.003*(w1*w1+w2*w2))*0.2 : true;
  [service1] at=0 & !busy -> RETIRES : (at'=2) & (w1'=0) & (w2'=0) & (busy'=true)
    + GOES_ON*0.6 : (w1'=max(w1-2,0)) & (busy'=true) + GOES_ON*0.4 : (w1'=max(w1-1,0)) & (busy'=true);
  [service2] at=0 & !busy -> RETIRES : (at'=2) & (w1'=0) & (w2'=0) & (busy'=true)
    + GOES_ON*0.6 : (w2'=max(w2-2,0)) & (busy'=true) + GOES_ON*0.4 : (w2'=max(w2-1,0)) & (busy'=true);
  [over] at>0 -> true;
endmodule
label "goal" = at=1;
label "avoid" = at=2;
